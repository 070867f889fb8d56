"""Looks for idle GPUs, marks their pods and evicts them.

Evicts pods that do not use their GPUs, after a notice, where policy says so. A Notebook is stopped, too.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import islice
from typing import Any, Final

from webhook.addons.idle.judge import Candidate, GpuSeries, IdleClock, Reading, Verdicts, candidates, utilization_by_pod
from webhook.addons.idle.metrics import IdleMetrics, JudgedPod
from webhook.addons.idle.utilization import UtilizationError, read_utilization
from webhook.cluster.api.client import ClusterError
from webhook.cluster.writes import evictions
from webhook.cluster.writes.events import OwnerLookup
from webhook.cluster.writes.evictions import Evicted, Outcome
from webhook.cluster.writes.pod_writes import mark_idle, stop_notebook
from webhook.core.model.amounts import Uid, duration, plural_gpus
from webhook.core.model.policy_addons import IdleAction, IdleRules, NotifyKind
from webhook.core.reclaim.holds import own_target
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import Victim
from webhook.evictor.addons import EvictorAddon, EvictorParts, Leading
from webhook.evictor.cluster_view import EvictorContext, controller_ref
from webhook.evictor.unevictable import LONG_SECONDS, PodBackoff
from webhook.kube.ledger.reports import shortened
from webhook.kube.nodes.holds import notebook_path, rfc3339
from webhook.kube.objects.events import EventReason, ObjectRef
from webhook.observe.logs import pod_fields

EVICTIONS_AT_ONCE: Final = 20
"""Notices, and evictions, in one look."""


class IdleEvictions:
    """The announced evictions, by pod, with the time of each."""

    def __init__(self, context: EvictorContext, owners: OwnerLookup) -> None:
        self._context = context
        self._owners = owners
        self._at: dict[Uid, int] = {}
        self._has_resumed = False
        self._backoff: PodBackoff[Uid] = PodBackoff(context.clock)

    async def look(self, idle: Sequence[Candidate], fresh: Set[Uid], rules: IdleRules, *, now: int) -> list[Candidate]:
        """Announce, withdraw and carry out; return the pods that were evicted.

        `idle` are the pods that are to go, `fresh` those for which the last reading says so.
        """
        self._resume(rules, now=now)
        await self._withdraw(self._at.keys() - {each.uid for each in idle})
        done: list[Candidate] = []
        paused, notices = self._backoff.paused(), 0
        for candidate in idle:
            gpu_pod = self._context.cluster_view.reclaim_index.staying(candidate.uid)
            victim = None if gpu_pod is None else self._victim(gpu_pod, now=now)
            if gpu_pod is None or victim is None or candidate.uid in paused or not self._context.is_leading():
                continue
            at = self._at.get(candidate.uid)
            if at is None and notices < EVICTIONS_AT_ONCE:
                notices += 1
                await self._announce(gpu_pod, victim, rules, now=now)
            is_due = at is not None and at <= now and candidate.uid in fresh and len(done) < EVICTIONS_AT_ONCE
            if is_due and await self._evict(gpu_pod, victim, now=now):
                done.append(candidate)
        return done

    def _victim(self, gpu_pod: ReclaimPod, *, now: int) -> Victim | None:
        """Return a pod as a victim; None where it is protected, too young, or evicted for another pod already."""
        index = self._context.cluster_view.reclaim_index
        victim = None if index.evictions.get(gpu_pod.uid) is not None else index.evictable(gpu_pod)
        return None if victim is None or victim.until > now else victim

    def _resume(self, rules: IdleRules, *, now: int) -> None:
        """Continue, once, what an earlier leader announced: each keeps its time, if that is still to come."""
        if self._has_resumed:
            return
        self._has_resumed = True
        index = self._context.cluster_view.reclaim_index
        for gpu_pod in index.all():
            at = gpu_pod.pod.notice_at
            if at and gpu_pod.pod.idle_since and index.evictions.get(gpu_pod.uid) is None:
                latest = now + rules.notice_seconds
                self._at[gpu_pod.uid] = at if now <= at <= latest else latest

    async def _announce(self, gpu_pod: ReclaimPod, victim: Victim, rules: IdleRules, *, now: int) -> None:
        self._at[gpu_pod.uid] = at = now + rules.notice_seconds
        try:
            await evictions.give_notice(self._context.connection, own_target(victim, at=at), None)
        except ClusterError as error:  # it is evicted without, at the same time
            self._context.logs.event.warning("no notice", **pod_fields(gpu_pod.pod), why=str(error))
        if rules.notice_seconds:
            text = f"will be evicted at {rfc3339(at)}: {_why(gpu_pod)}. Use them or save your work until then"
            self._context.report(gpu_pod, EventReason.EVICTION_PLANNED, text)

    async def _withdraw(self, uids: Iterable[Uid]) -> None:
        for uid in list(uids):
            gpu_pod = self._context.cluster_view.reclaim_index.staying(uid)
            if gpu_pod is None or not gpu_pod.pod.notice_at:
                del self._at[uid]
                continue
            try:
                await evictions.take_notice_back(self._context.connection, own_target(gpu_pod))
            except ClusterError as error:
                self._context.logs.event.warning("notice not withdrawn", **pod_fields(gpu_pod.pod), why=str(error))
                continue  # until the next look
            del self._at[uid]
            text = "not evicted: its GPUs are used again, or it is not known that they are not"
            self._context.report(gpu_pod, EventReason.EVICTION_CANCELLED, text)

    async def _evict(self, gpu_pod: ReclaimPod, victim: Victim, *, now: int) -> bool:
        """Evict a pod, and first stop its Notebook, which would create it again; return whether it was evicted.

        Its controller deletes the pod of a stopped Notebook, whatever its budgets say: so an eviction is tried before.
        """
        index = self._context.cluster_view.reclaim_index
        target = own_target(victim, grace_seconds=victim.grace_seconds)
        evict = partial(evictions.evict, self._context.connection, target, is_guarded=index.may_be_refused(victim))
        try:
            notebook = await self._notebook(gpu_pod)
            outcome: Outcome = Evicted.ACCEPTED if notebook is None else await evict(is_trial=True)
            if notebook is not None and isinstance(outcome, Evicted) and outcome is not Evicted.GONE:
                await stop_notebook(self._context.connection, notebook, at=now)
        except ClusterError as error:
            self._refused(gpu_pod, f"its Notebook cannot be stopped: {error}")
            return False
        if isinstance(outcome, Evicted):
            outcome = await evict()
        if not isinstance(outcome, Evicted):
            self._refused(gpu_pod, outcome.why)
            return False
        del self._at[gpu_pod.uid]
        if outcome is Evicted.GONE:
            return False
        name = "" if notebook is None else notebook.name
        self._context.logs.event.info("idle pod evicted", **pod_fields(gpu_pod.pod), notebook=name)
        more = f". Notebook {name} is stopped: start it again when you need it" if name else ""
        self._context.report(gpu_pod, EventReason.IDLE_EVICTED, f"evicted: {_why(gpu_pod)}{more}")
        self._context.notify(NotifyKind.EVICTIONS, gpu_pod, f"{_why(gpu_pod)}{more}")
        return True

    async def _notebook(self, gpu_pod: ReclaimPod) -> ObjectRef | None:
        """Return the Notebook that a pod belongs to; None where there is none. Raises ClusterError."""
        owner = controller_ref(gpu_pod)
        top = None if owner is None else await self._owners.top(owner)
        return None if top is None or notebook_path(top) is None else top

    def _refused(self, gpu_pod: ReclaimPod, why: str) -> None:
        self._backoff.pause(gpu_pod.uid, LONG_SECONDS)
        self._context.logs.event.warning("idle pod not evicted", **pod_fields(gpu_pod.pod), why=why)
        text = f"not evicted, though it does not use its GPUs: {why}. The next try is in {LONG_SECONDS:.0f} s"
        self._context.report(gpu_pod, EventReason.EVICTION_REFUSED, text)


def _why(gpu_pod: ReclaimPod) -> str:
    since = f" since {rfc3339(gpu_pod.pod.idle_since)}" if gpu_pod.pod.idle_since else ""
    return f"it has not used its {plural_gpus(gpu_pod.demand.gpus)}{since}"


# Finds pods that hold GPUs and do not use them: reads utilization, judges, and publishes what is idle.
#
# What follows is done elsewhere, by the mark on the pod: reclaim prefers it as a victim, the server's leader demotes
# it, usage counts it. Without a reading nothing follows.


LOOK_SECONDS: Final = 10.0
"""Time between two looks while policy has no rules."""

MARKS: Final = 200
"""Pods that are marked, or whose mark is removed, in one look: the others are in the next one."""

LOOKUPS_AT_ONCE: Final = 8
"""Concurrent requests."""

PODS_AT_ONCE: Final = 500
"""Pods in one turn of the event loop: it takes about ten milliseconds to say what is to be judged of them."""

_WHAT_FOLLOWS: Final = {
    IdleAction.PREFER: "while it borrows, it is evicted before pods that use their GPUs",
    IdleAction.DEMOTE: "if it is guaranteed, it becomes preemptible while others wait",
    IdleAction.EVICT: "it is evicted after a notice",
}


class IdleGpus:
    """Looks for such pods while this evictor leads. `problem` is why utilization is not known, "" if it is."""

    def __init__(self, context: EvictorContext, evictions: IdleEvictions, metrics: IdleMetrics) -> None:
        self.problem = ""
        self._context = context
        self._metrics = metrics
        self._evictions = evictions
        self._clock = IdleClock()
        self._slots = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._backoff: PodBackoff[Uid] = PodBackoff(context.clock)
        self._looked_at: float | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            rules = self._context.cluster_view.world.policy.idle
            if rules is None:
                await self._without_rules()
                await asyncio.sleep(LOOK_SECONDS)
                continue
            await self.look(rules)
            interval = rules.source.interval_seconds
            await asyncio.sleep(max(1.0, interval - self._context.clock() % interval))

    async def look(self, rules: IdleRules) -> None:
        """Read once, and act on what is idle now."""
        found = await self._read(rules)
        if self._context.why_stale() is not None:
            return
        pods = await self._candidates()
        now = int(self._context.clock())
        verdicts = await asyncio.to_thread(self._judge, pods, found, rules, now)
        self._count(pods, verdicts, now=now)
        if self._context.may_act:
            await self._publish(verdicts.idle_since, {each.uid: each for each in pods}, rules)
            idle = [each for each in pods if each.uid in verdicts.idle_since and IdleAction.EVICT in each.terms.actions]
            fresh = {uid for uid, reading in verdicts.readings.items() if reading is Reading.LOW}
            for evicted in await self._evictions.look(idle, fresh, rules, now=now):
                self._clock.evicted(evicted)
                self._metrics.evicted(evicted.team)

    async def _without_rules(self) -> None:
        if self._looked_at is not None:
            self._metrics.forget()
        self.problem, self._looked_at, self._clock = "", None, IdleClock()
        if self._context.may_act:
            await self._publish({}, {}, None)

    def _judge(self, pods: list[Candidate], series: list[GpuSeries], rules: IdleRules, now: int) -> Verdicts:
        """Judge all pods, which takes tenths of a second for 10,000; runs in a thread, and alone uses the clock."""
        return self._clock.look(pods, utilization_by_pod(series) if series else None, rules, now=now)

    async def _read(self, rules: IdleRules) -> list[GpuSeries]:
        """Return the utilization of all GPUs; nothing where it is not known."""
        source, before = rules.source, self.problem
        series: list[GpuSeries] = []
        try:
            series = await read_utilization(source, now=self._context.clock())
            named = ", ".join(f"{name}={value}" for name, value in source.series)
            self.problem = "" if series else f"{source.url} has no series of GPUs of pods with {named}"
            self._metrics.reading("read" if series else "empty")
        except UtilizationError as error:
            self.problem = f"{source.url}: {error}"
            self._metrics.reading("failed")
        if self.problem and self.problem != before:
            self._context.logs.event.warning("utilization unknown", why=self.problem)
        return series

    async def _candidates(self) -> list[Candidate]:
        view = self._context.cluster_view
        found: list[Candidate] = []
        waiting = iter(list(view.reclaim_index.all()))
        while part := list(islice(waiting, PODS_AT_ONCE)):
            found += candidates(part, view.world)
            await asyncio.sleep(0)
        return found

    def _count(self, pods: list[Candidate], verdicts: Verdicts, *, now: int) -> None:
        def state(pod: Candidate) -> str:
            if pod.uid in verdicts.idle_since:
                return "idle"
            return "not_judged" if pod.cannot_judge else str(verdicts.readings.get(pod.uid, Reading.UNKNOWN))

        seconds = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at)
        self._looked_at = now
        judged = (
            JudgedPod(pod.team, pod.gpus, state(pod), verdicts.readings.get(pod.uid) is Reading.LOW) for pod in pods
        )
        teams = [team.name for team in self._context.cluster_view.world.policy.teams]
        self._metrics.looked(judged, seconds=seconds, teams=teams)

    async def _publish(
        self, idle_since: Mapping[Uid, int], known: Mapping[Uid, Candidate], rules: IdleRules | None
    ) -> None:
        """Mark the pods that became idle, and remove the mark of those that are not."""
        paused = self._backoff.paused()
        changed = (
            gpu_pod
            for gpu_pod in list(self._context.cluster_view.reclaim_index.all())
            if bool(gpu_pod.pod.idle_since) != (gpu_pod.uid in idle_since) and gpu_pod.uid not in paused
        )
        await asyncio.gather(
            *(self._mark(gpu_pod, idle_since.get(gpu_pod.uid), known, rules) for gpu_pod in islice(changed, MARKS))
        )

    async def _mark(
        self, gpu_pod: ReclaimPod, since: int | None, known: Mapping[Uid, Candidate], rules: IdleRules | None
    ) -> None:
        async with self._slots:
            if not self._context.is_leading():
                return
            try:
                await mark_idle(self._context.connection, gpu_pod.pod, since=since)
            except ClusterError as error:
                self._backoff.pause(gpu_pod.uid, LONG_SECONDS)
                self._context.logs.event.warning("idle pod not marked", **pod_fields(gpu_pod.pod), why=str(error))
                return
        candidate = known.get(gpu_pod.uid)
        if since is None or candidate is None or rules is None:
            self._context.logs.event.info("no longer idle", **pod_fields(gpu_pod.pod))
            return
        self._context.logs.event.info("idle", **pod_fields(gpu_pod.pod), since=since)
        if IdleAction.REPORT in candidate.terms.actions:
            self._report(gpu_pod, candidate, rules)

    def _report(self, gpu_pod: ReclaimPod, candidate: Candidate, rules: IdleRules) -> None:
        text = idle_text(candidate, rules)
        self._context.report(gpu_pod, EventReason.IDLE, f"its {text}")
        message = f"pod {gpu_pod.name}: its {text}"
        self._context.report_on_controller(gpu_pod, EventReason.IDLE, message, series=EventReason.IDLE)
        self._context.notify(NotifyKind.IDLE, gpu_pod, text)


def idle_text(candidate: Candidate, rules: IdleRules) -> str:
    """Return what is known of a pod that is idle, and what follows."""
    terms = candidate.terms
    follows = [text for action, text in _WHAT_FOLLOWS.items() if action in terms.actions]
    share = "" if rules.share_percent == 100 else f" in {rules.share_percent} % of the time"  # noqa: PLR2004
    what = f"{plural_gpus(candidate.gpus)} were used less than {terms.below_percent} %{share} for "
    return what + duration(terms.for_seconds) + "".join(f"; {text}" for text in follows)


class Idle(EvictorAddon):
    """The search in an evictor, while that leads."""

    def __init__(self, parts: EvictorParts) -> None:
        self._metrics = IdleMetrics(parts.metrics.registry)
        self._idle: IdleGpus | None = None

    def lead(self, leading: Leading) -> Sequence[Coroutine[Any, Any, None]]:
        """Begin to look."""
        evictions = IdleEvictions(leading.context, leading.owners)
        self._idle = IdleGpus(leading.context, evictions, self._metrics)
        return (self._idle.run(),)

    def ended(self) -> None:
        """Look no more."""
        self._idle = None

    def report(self) -> Mapping[str, Any]:
        """Return why the use of GPUs is not known; "" if it is, and while this evictor does not lead."""
        return {"idle_problem": "" if self._idle is None else shortened(self._idle.problem)}
