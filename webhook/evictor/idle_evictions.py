"""Evicts pods that do not use their GPUs, after a notice, where policy says so. A Notebook is stopped, too."""

from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Final

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes import evictions, holds
from webhook.cluster.writes.evictions import Evicted, Outcome
from webhook.cluster.writes.idle_marks import stop_notebook
from webhook.cluster.writes.owners import OwnerLookup
from webhook.core.idle.idle_clock import Candidate
from webhook.core.model.idle_rules import IdleRules
from webhook.core.model.names import Uid
from webhook.core.model.notify_rules import NotifyKind
from webhook.core.model.text import plural_gpus
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import own_target
from webhook.core.reclaim.victim import Victim
from webhook.evictor.backoff import LONG_SECONDS, PodBackoff
from webhook.evictor.evictor_context import EvictorContext, controller_ref
from webhook.kube.objects.events import EventReason, ObjectRef
from webhook.kube.reclaim.holds import rfc3339
from webhook.kube.reclaim.idle_marks import notebook_path
from webhook.observe.logs import pod_fields

AT_ONCE: Final = 20
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
            if at is None and notices < AT_ONCE:
                notices += 1
                await self._announce(gpu_pod, victim, rules, now=now)
            is_due = at is not None and at <= now and candidate.uid in fresh and len(done) < AT_ONCE
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
            await holds.give_notice(self._context.connection, own_target(victim, at=at), None)
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
                await holds.take_notice_back(self._context.connection, own_target(gpu_pod))
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
        self._context.notify_people(NotifyKind.EVICTIONS, gpu_pod, f"{_why(gpu_pod)}{more}")
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
