"""Stranded and lost pods.

Marks pods of Jobs as failed that never end because their node is lost, so that the Jobs replace them.
"""

import asyncio
from typing import Final

from webhook.cluster.api.client import STRATEGIC_PATCH, ClusterError
from webhook.cluster.api.requests import pod_path
from webhook.cluster.writes import evictions
from webhook.cluster.writes.evictions import Evicted, Outcome
from webhook.core.line.judged_pod import BorrowedRoom
from webhook.core.model.amounts import NodeName, Uid, Unlimited, coarse_age, plural_gpus
from webhook.core.reclaim.holds import own_target
from webhook.core.reclaim.reclaim_index import STRANDED_SECONDS, StalledPods, is_stranded
from webhook.core.reclaim.reclaim_pods import ReclaimPod, is_protected
from webhook.evictor.cluster_view import EvictorContext, controller_ref
from webhook.evictor.unevictable import LONG_SECONDS, PodBackoff
from webhook.kube.kinds.table import path_of
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects.events import EventReason, ObjectRef
from webhook.kube.pod.outcomes import failed_patch, replaces_at_once
from webhook.observe.logs import pod_fields

LOOK_SECONDS: Final = 10.0
"""Time between two looks: short compared with the time after which Kubernetes deletes the pods of a lost node."""

MOST: Final = 50
"""Pods in one look; a node has at most a few dozen."""

FAILED_SECONDS: Final = 60.0
"""When to try again after a request failed."""


class LostPods:
    """Looks for such pods while this evictor leads."""

    def __init__(self, context: EvictorContext) -> None:
        self._context = context
        self._backoff: PodBackoff[Uid] = PodBackoff(context.clock)  # their Jobs wait for their end, or cannot be read

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._context.may_act:
                await self.look()

    async def look(self) -> None:
        """Mark those that are there now."""
        paused = self._backoff.paused()
        for gpu_pod in [each for each in self._lost() if each.uid not in paused][:MOST]:
            if not self._context.is_leading():
                return
            await self._end(gpu_pod)

    def _lost(self) -> list[ReclaimPod]:
        stuck = self._context.cluster_view.reclaim_index.stuck(now=self._context.clock())
        return [each for each in stuck if _job_of(each) is not None and self._is_lost(each.pod.node)]

    def _is_lost(self, node: NodeName | None) -> bool:
        """Whether no kubelet reports from a node; kube-controller-manager ends the pods of one that does not exist."""
        found = None if node is None else self._context.cluster_view.world.fleet.get(node)
        return found is not None and not found.is_ready

    async def _end(self, gpu_pod: ReclaimPod) -> None:
        job, node = _job_of(gpu_pod), gpu_pod.pod.node
        if job is None or node is None:
            return
        path = path_of(job)
        status = pod_path(gpu_pod.namespace, gpu_pod.name) + "/status"
        patch = failed_patch(gpu_pod.uid, node=node, at=rfc3339(int(self._context.clock())))
        named = {**pod_fields(gpu_pod.pod), "node": node}
        self._backoff.pause(gpu_pod.uid, LONG_SECONDS)
        if path is None:  # no Job can have that name
            return
        send = self._context.connection.send
        try:
            if not replaces_at_once(await send("GET", path, action="get jobs"), job.uid):
                return
            await send("PATCH", status, patch, action="patch pods/status", content_type=STRATEGIC_PATCH)
        except ClusterError as error:
            self._backoff.pause(gpu_pod.uid, FAILED_SECONDS)
            self._context.logs.event.warning("lost pod not replaced", **named, why=str(error))
            return
        self._context.logs.event.info("lost pod replaced", **named)
        text = f"marked as failed, so that its Job replaces it: node {node} is lost, and its grace period is over"
        self._context.report(gpu_pod, EventReason.NODE_LOST, text)


def _job_of(gpu_pod: ReclaimPod) -> ObjectRef | None:
    owner = controller_ref(gpu_pod)
    return owner if owner is not None and (owner.api_version, owner.kind) == ("batch/v1", "Job") else None


# Repairs pods that cannot be bound: their chosen nodes cannot take them, or something else than room keeps them off.
#
# Stranded pods with a controller are deleted, so that it creates them again, and the others reported. Stalled pods are
# deleted once their time is over: their charge serves no one.


AT_ONCE: Final = 20
"""Pods replaced in one look: the next look should see the room that the new ones take."""


class Repair:
    """Replaces or reports stranded pods while this evictor leads."""

    def __init__(self, context: EvictorContext, *, after_seconds: int = STRANDED_SECONDS) -> None:
        self._context = context
        self._after_seconds = after_seconds
        self._reported: set[Uid] = set()
        self._stalled = StalledPods()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._after_seconds / 2))
            if self._context.may_act and self._context.cluster_view.world.knows_all_namespaces:
                await self.look()

    async def look(self) -> None:
        """Replace or report the pods that are stranded now."""
        stranded = self._stranded()
        self._reported &= {gpu_pod.uid for gpu_pod in stranded}
        for gpu_pod in [each for each in stranded if each.pod.owner is not None][:AT_ONCE]:
            if self._context.is_leading():
                await self._replace(gpu_pod)
        for gpu_pod in stranded:
            if gpu_pod.pod.owner is None and gpu_pod.uid not in self._reported:
                self._reported.add(gpu_pod.uid)
                self._publish(gpu_pod, EventReason.STRANDED, "delete it and create it again")
        for gpu_pod in self._overdue()[:AT_ONCE]:
            if self._context.is_leading():
                await self._end(gpu_pod)

    def _overdue(self) -> list[ReclaimPod]:
        rules = self._context.cluster_view.world.policy.reclaim
        stalled = self._context.cluster_view.reclaim_index.stalled()
        found = self._stalled.overdue(stalled, now=self._context.clock(), bound_seconds=rules.start_within_seconds)
        return [gpu_pod for gpu_pod in found if not is_protected(gpu_pod, rules)]

    async def _end(self, gpu_pod: ReclaimPod) -> None:
        """Delete a pod that did not start within its time."""
        pod, why = gpu_pod.pod, "" if gpu_pod.pod.unbound is None else gpu_pod.pod.unbound.why
        outcome = await self._delete(gpu_pod)
        if outcome is Evicted.GONE:
            return
        if isinstance(outcome, Evicted):
            bound = self._context.cluster_view.world.policy.reclaim.start_within_seconds
            age = "" if isinstance(bound, Unlimited) else coarse_age(bound)
            time = f" for {age}" if age else ""
            charged = f"{plural_gpus(pod.demand.gpus)} were charged for it"
            text = f"deleted: kept off every node{time} by something else than room, while {charged}: {why}"
            self._context.logs.event.info("never started", **pod_fields(gpu_pod.pod), why=why)
            self._context.report(gpu_pod, EventReason.NEVER_STARTED, text)
        else:
            self._context.logs.event.warning("stalled pod not deleted", **pod_fields(gpu_pod.pod), why=outcome.why)

    def _stranded(self) -> list[ReclaimPod]:
        world, now, after = self._context.cluster_view.world, int(self._context.clock()), self._after_seconds
        held = 0
        for node in self._context.cluster_view.marked:
            held |= world.fleet.bit(node)
        borrowed_room = BorrowedRoom(world)
        return [
            gpu_pod
            for gpu_pod in self._context.cluster_view.reclaim_index.pinned()
            if is_stranded(gpu_pod, world, now=now, held=held, could_hold=borrowed_room.could_hold, after_seconds=after)
        ]

    async def _replace(self, gpu_pod: ReclaimPod) -> None:
        outcome = await self._delete(gpu_pod)
        if isinstance(outcome, Evicted) and outcome is not Evicted.GONE:
            self._publish(gpu_pod, EventReason.REPLACED, "deleted, so that its controller replaces it")
        elif not isinstance(outcome, Evicted):
            self._context.logs.event.warning("stranded pod not replaced", **pod_fields(gpu_pod.pod), why=outcome.why)

    async def _delete(self, gpu_pod: ReclaimPod) -> Outcome:
        """Evict a pod without a node, which the API server deletes at once."""
        return await evictions.evict(self._context.connection, own_target(gpu_pod.pod))

    def _publish(self, gpu_pod: ReclaimPod, reason: EventReason, what: str) -> None:
        nodes = ", ".join(gpu_pod.chosen)
        why = "are gone, cordoned, full or barred by its topology rules, and other nodes would take it"
        text = f"the nodes that were chosen for it ({nodes}) {why}: {what}"
        self._context.logs.event.info("stranded", **pod_fields(gpu_pod.pod), reason=str(reason))
        self._context.report(gpu_pod, reason, text)
