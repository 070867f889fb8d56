"""What the parts of a leading evictor share: the cluster as it sees it, and the ways to change and report it."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.events import EventWriter
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import Beneficiary, EvictionTarget
from webhook.core.reclaim.victim import Victim
from webhook.evictor.cluster_view import ClusterView
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.observe.logs import Logs
from webhook.observe.reclaim import ReclaimMetrics


def controller_ref(gpu_pod: ReclaimPod) -> ObjectRef | None:
    """Return the controller of a pod as Events and lookups refer to it; None for a pod without one."""
    if (made_by := gpu_pod.controller) is None:
        return None
    return ObjectRef(made_by.kind, gpu_pod.namespace, made_by.name, made_by.uid, made_by.api_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorContext:
    """One evictor's view and tools. `why_stale` returns why the view may not be current; `clock` gives Unix time."""

    cluster_view: ClusterView
    connection: ApiConnection
    events: EventWriter
    logs: Logs
    metrics: ReclaimMetrics
    why_stale: Callable[[], str | None]
    is_leading: Callable[[], bool]
    clock: Callable[[], float]

    @property
    def may_act(self) -> bool:
        """Whether policy is enforced, and what is seen is fresh."""
        return self.cluster_view.world.policy.is_enforced and self.why_stale() is None

    def report(self, pod: ReclaimPod | Victim | EvictionTarget | Beneficiary, reason: EventReason, text: str) -> None:
        """Record an Event on a pod."""
        self.events.record(Event(ObjectRef("Pod", pod.namespace, pod.name, pod.uid), reason, text))
