"""What those that repair pods outside of reclaim share: when they may act, how they see pods, and how they report."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.events import EventWriter
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.evictor.cluster_view import ClusterView
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairContext:
    """The cluster as this evictor sees it, and as it changes it. `clock` gives Unix time."""

    cluster_view: ClusterView
    connection: ApiConnection
    event_recorder: EventWriter
    logs: Logs
    why_stale: Callable[[], str | None]
    is_leading: Callable[[], bool]
    clock: Callable[[], float]

    @property
    def may_act(self) -> bool:
        """Whether policy is enforced, and what is seen is fresh."""
        return self.cluster_view.world.policy.is_enforced and self.why_stale() is None

    def record(self, gpu_pod: ReclaimPod, kind: EventType, reason: EventReason, text: str) -> None:
        """Record an Event on a pod."""
        about = ObjectRef("Pod", gpu_pod.namespace, gpu_pod.name, gpu_pod.uid)
        self.event_recorder.record(Event(about, kind, reason, "Repair", text))


def subject(gpu_pod: ReclaimPod) -> dict[str, str]:
    """Return the fields of a log line that name a pod."""
    return {"namespace": gpu_pod.namespace, "name": gpu_pod.name, "uid": gpu_pod.uid}
