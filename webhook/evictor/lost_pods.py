"""Marks pods of Jobs as failed that never end because their node is lost, so that the Jobs replace them."""

import asyncio
from typing import Final

from webhook.cluster.api.client import STRATEGIC_PATCH
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.one_object import pod_path
from webhook.core.model.names import NodeName, Uid
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.evictor.backoff import LONG_SECONDS, PodBackoff
from webhook.evictor.evictor_context import EvictorContext, controller_ref
from webhook.kube.kinds.controllers import path_of
from webhook.kube.objects.events import EventReason, ObjectRef
from webhook.kube.reclaim.holds import rfc3339
from webhook.kube.reclaim.lost_pods import failed_patch, replaces_at_once
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
