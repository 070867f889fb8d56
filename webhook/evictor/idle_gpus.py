"""Finds pods that hold GPUs and do not use them: reads utilization, judges, and publishes what is idle.

What follows is done elsewhere, by the mark on the pod: reclaim prefers it as a victim, the server's leader demotes it,
usage counts it. Evictions are in idle_evictions.py. Without a reading nothing follows.
"""

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Final

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.reads.utilization import UtilizationError, read_utilization
from webhook.cluster.writes.idle_marks import mark_idle
from webhook.core.idle.candidates import candidates
from webhook.core.idle.idle_clock import Candidate, IdleClock, Verdicts
from webhook.core.idle.idle_window import Reading
from webhook.core.idle.utilization import GpuSeries, utilization_by_pod
from webhook.core.model.idle_rules import IdleAction, IdleRules
from webhook.core.model.names import Uid
from webhook.core.model.notify_rules import NotifyKind
from webhook.core.model.text import duration, plural_gpus
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.evictor.backoff import LONG_SECONDS, PodBackoff
from webhook.evictor.evictor_context import EvictorContext
from webhook.evictor.idle_evictions import IdleEvictions
from webhook.kube.objects.events import EventReason
from webhook.observe.idle import JudgedPod
from webhook.observe.logs import pod_fields

LOOK_SECONDS: Final = 10.0
"""Time between two looks while policy has no rules."""

MARKS: Final = 200
"""Pods that are marked, or whose mark is removed, in one look: the others are in the next one."""

AT_ONCE: Final = 8
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

    def __init__(self, context: EvictorContext, evictions: IdleEvictions) -> None:
        self.problem = ""
        self._context = context
        self._metrics = context.metrics.idle
        self._evictions = evictions
        self._clock = IdleClock()
        self._slots = asyncio.Semaphore(AT_ONCE)
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
        self._context.notify_people(NotifyKind.IDLE, gpu_pod, text)


def idle_text(candidate: Candidate, rules: IdleRules) -> str:
    """Return what is known of a pod that is idle, and what follows."""
    terms = candidate.terms
    follows = [text for action, text in _WHAT_FOLLOWS.items() if action in terms.actions]
    share = "" if rules.share_percent == 100 else f" in {rules.share_percent} % of the time"  # noqa: PLR2004
    what = f"{plural_gpus(candidate.gpus)} were used less than {terms.below_percent} %{share} for "
    return what + duration(terms.for_seconds) + "".join(f"; {text}" for text in follows)
