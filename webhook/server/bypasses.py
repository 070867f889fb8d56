"""Reports pods that hold GPUs and never passed the gate: the webhook was down, or a kubelet runs them by itself."""

from webhook.core.amount import format_gpus
from webhook.core.names import Uid
from webhook.core.pod import Resident
from webhook.core.world import World
from webhook.kube.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs
from webhook.server.tiers import Teller


class Bypasses:
    """Tells of each such pod once. Another leader tells of it again, with the same event, which is then not new."""

    def __init__(self, world: World, teller: Teller, logs: Logs) -> None:
        self._world = world
        self._teller = teller
        self._logs = logs
        self._told: set[Uid] = set()

    def look(self) -> None:
        """Find the pods that have come since the last look."""
        found = {uid for book in self._world.books().values() for uid in book.unlabelled()}
        for uid in found - self._told:
            pod = self._world.pod(uid)
            if pod is not None and not self._world.tenancy(pod.namespace).is_exempt:
                self._tell(pod)
        self._told = found

    def _tell(self, pod: Resident) -> None:
        team = self._world.tenancy(pod.namespace).team_name
        gpus = format_gpus(pod.demand.gpus)
        text = (
            f"holds {gpus} GPUs that Fairgate did not decide on: they count against team {team}'s guaranteed share. "
            "A pod of a DaemonSet, with a nodeName or of another scheduler is never labelled; any other was made past "
            "Fairgate's webhook"
        )
        self._logs.event.warning(
            "pod bypassed the gate", namespace=pod.namespace, name=pod.name, uid=pod.uid, team=team, gpus=gpus
        )
        about = ObjectRef("Pod", pod.namespace, pod.name, pod.uid)
        self._teller.tell(Event(about, EventType.WARNING, EventReason.BYPASSED_ADMISSION, "Count", text))
