"""What the parts of a leading evictor share: the cluster as it sees it, and the ways to change and report it."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.events import EventWriter
from webhook.cluster.writes.owner_events import OwnerEvent
from webhook.core.model.amount import format_gpus
from webhook.core.model.notify_rules import NotifyKind
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import Beneficiary, EvictionTarget
from webhook.core.reclaim.victim import Victim
from webhook.evictor.cluster_view import ClusterView
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.kube.reclaim.holds import rfc3339
from webhook.notify.message import Item, Subject, item
from webhook.observe.logs import Logs
from webhook.observe.reclaim import ReclaimMetrics


def controller_ref(gpu_pod: ReclaimPod) -> ObjectRef | None:
    """Return the controller of a pod as Events and lookups refer to it; None for a pod without one."""
    if (made_by := gpu_pod.controller) is None:
        return None
    return ObjectRef(made_by.kind, gpu_pod.namespace, made_by.name, made_by.uid, made_by.api_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorContext:
    """One evictor's view and tools. `why_stale` returns why the view may not be current; `clock` gives Unix time.

    `notify_owner` queues Events on owners of pods, `notify` messages to people.
    """

    cluster_view: ClusterView
    connection: ApiConnection
    events: EventWriter
    notify_owner: Callable[[OwnerEvent], None]
    notify: Callable[[Subject, Item], None]
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

    def report_on_controller(self, gpu_pod: ReclaimPod, reason: EventReason, text: str, *, series: str) -> None:
        """Record an Event on the controller of a pod; those of one series become one with a count."""
        if (owner := controller_ref(gpu_pod)) is not None:
            self.notify_owner(OwnerEvent(owner, reason, text, series))

    def notify_people(self, kind: NotifyKind, gpu_pod: ReclaimPod, text: str) -> None:
        """Have people of a pod's team get a message about it."""
        gpus, at = format_gpus(gpu_pod.demand.gpus), rfc3339(int(self.clock()))
        self.notify(
            Subject(kind, gpu_pod.team),
            item(text, at=at, namespace=gpu_pod.namespace, name=gpu_pod.name, gpus=gpus),
        )
