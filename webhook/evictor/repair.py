"""Repairs pods that cannot be bound: their chosen nodes cannot take them, or something else than room keeps them off.

Stranded pods with a controller are deleted, so that it creates them again, and the others reported. Stalled pods are
deleted once their time is over: their charge serves no one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes import evictions
from webhook.cluster.writes.evictions import Evicted
from webhook.core.model.amount import Unlimited
from webhook.core.model.names import Uid
from webhook.core.model.text import coarse_age, plural_gpus
from webhook.core.reclaim.reclaim_pod import ReclaimPod, is_protected
from webhook.core.reclaim.reservation import Target
from webhook.core.reclaim.stalled import StalledPods
from webhook.core.reclaim.stranded import STRANDED_SECONDS, is_stranded
from webhook.core.release.reclaimable import BorrowedRoom
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.reporter import EventRecorder
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs

LOOK_SECONDS: Final = 10.0
"""Time between two looks, or less: short compared with the wait of a stranded pod."""

AT_ONCE: Final = 20
"""Pods replaced in one look: the next look should see the room that the new ones take."""


class Repair:
    """Replaces or reports stranded pods while this evictor leads."""

    def __init__(
        self,
        cluster_view: ClusterView,
        connection: ApiConnection,
        *,
        event_recorder: EventRecorder,
        logs: Logs,
        why_stale: Callable[[], str | None],
        is_leading: Callable[[], bool],
        clock: Callable[[], float],
        after_seconds: int = STRANDED_SECONDS,
    ) -> None:
        self._cluster_view = cluster_view
        self._connection = connection
        self._event_recorder = event_recorder
        self._logs = logs
        self._why_stale = why_stale
        self._is_leading = is_leading
        self._clock = clock
        self._after_seconds = after_seconds
        self._reported: set[Uid] = set()
        self._stalled = StalledPods()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._after_seconds / 2))
            is_enforced = self._cluster_view.world.policy.is_enforced
            if is_enforced and self._why_stale() is None and self._cluster_view.world.knows_all_namespaces:
                await self.look()

    async def look(self) -> None:
        """Replace or report the pods that are stranded now."""
        stranded = self._stranded()
        self._reported &= {gpu_pod.uid for gpu_pod in stranded}
        for gpu_pod in [each for each in stranded if each.pod.owner is not None][:AT_ONCE]:
            if self._is_leading():
                await self._replace(gpu_pod)
        for gpu_pod in stranded:
            if gpu_pod.pod.owner is None and gpu_pod.uid not in self._reported:
                self._reported.add(gpu_pod.uid)
                self._publish(gpu_pod, EventType.WARNING, EventReason.STRANDED, "delete it and create it again")
        for gpu_pod in self._overdue()[:AT_ONCE]:
            if self._is_leading():
                await self._end(gpu_pod)

    def _overdue(self) -> list[ReclaimPod]:
        rules = self._cluster_view.world.policy.reclaim
        stalled = self._cluster_view.reclaim_index.stalled()
        found = self._stalled.overdue(stalled, now=self._clock(), bound_seconds=rules.start_within_seconds)
        return [gpu_pod for gpu_pod in found if not is_protected(gpu_pod, rules)]

    async def _end(self, gpu_pod: ReclaimPod) -> None:
        """Delete a pod that did not start within its time."""
        pod, why = gpu_pod.pod, "" if gpu_pod.pod.unbound is None else gpu_pod.pod.unbound.why
        outcome = await evictions.evict(self._connection, Target(pod.uid, pod.namespace, pod.name, pod.uid, 0))
        if outcome is Evicted.GONE:
            return
        if isinstance(outcome, Evicted):
            bound = self._cluster_view.world.policy.reclaim.start_within_seconds
            age = "" if isinstance(bound, Unlimited) else coarse_age(bound)
            time = f" for {age}" if age else ""
            text = (
                f"deleted: kept off every node{time} by something else than room, while {plural_gpus(pod.demand.gpus)}"
            )
            self._logs.event.info("never started", **_subject(gpu_pod), why=why)
            self._record(gpu_pod, EventType.WARNING, EventReason.NEVER_STARTED, f"{text} were charged for it: {why}")
        else:
            self._logs.event.warning("stalled pod not deleted", **_subject(gpu_pod), why=outcome.why)

    def _stranded(self) -> list[ReclaimPod]:
        world, now, after = self._cluster_view.world, int(self._clock()), self._after_seconds
        held = 0
        for node in self._cluster_view.marked:
            held |= world.fleet.bit(node)
        borrowed_room = BorrowedRoom(world)
        return [
            gpu_pod
            for gpu_pod in self._cluster_view.reclaim_index.pinned()
            if is_stranded(gpu_pod, world, now=now, held=held, could_hold=borrowed_room.could_hold, after_seconds=after)
        ]

    async def _replace(self, gpu_pod: ReclaimPod) -> None:
        pod = gpu_pod.pod
        target = Target(pod.uid, pod.namespace, pod.name, pod.uid, 0)
        outcome = await evictions.evict(self._connection, target)
        if outcome is Evicted.ACCEPTED:
            self._publish(
                gpu_pod, EventType.NORMAL, EventReason.REPLACED, "deleted, so that its controller replaces it"
            )
        elif not isinstance(outcome, Evicted):
            self._logs.event.warning("stranded pod not replaced", **_subject(gpu_pod), why=outcome.why)

    def _publish(self, gpu_pod: ReclaimPod, kind: EventType, reason: EventReason, what: str) -> None:
        nodes = ", ".join(gpu_pod.chosen)
        why = "are gone, cordoned, full or barred by its topology rules, and other nodes would take it"
        text = f"the nodes that were chosen for it ({nodes}) {why}: {what}"
        self._logs.event.info("stranded", **_subject(gpu_pod), reason=str(reason))
        self._record(gpu_pod, kind, reason, text)

    def _record(self, gpu_pod: ReclaimPod, kind: EventType, reason: EventReason, text: str) -> None:
        pod = gpu_pod.pod
        about = ObjectRef("Pod", pod.namespace, pod.name, pod.uid)
        self._event_recorder.record(Event(about, kind, reason, "Repair", text))


def _subject(gpu_pod: ReclaimPod) -> dict[str, str]:
    return {"namespace": gpu_pod.namespace, "name": gpu_pod.name, "uid": gpu_pod.uid}
