"""What the tasks of the leader share: the cluster as this replica sees it, and the ways to change and report it."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.writes.events import EventWriter
from webhook.cluster.writes.owner_events import OwnerEvent
from webhook.core.model.pod import Pod, Resident
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.observe.logs import Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """One candidate's view and tools. `why_stale` returns why the world may not be current, None if it is.

    `notify_owner` queues Events on the owners of pods.
    """

    connection: ApiConnection
    world: World
    ledger: ApiLedger
    events: EventWriter
    logs: Logs
    is_leading: Callable[[], bool]
    why_stale: Callable[[], str | None]
    notify_owner: Callable[[OwnerEvent], None]

    def report(self, pod: Resident | Pod, reason: EventReason, text: str) -> None:
        """Record an Event on a pod."""
        self.events.record(Event(ObjectRef("Pod", pod.namespace, pod.name, pod.uid), reason, text))
