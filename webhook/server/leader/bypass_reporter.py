"""Reports pods that hold GPUs and never passed the gate: the webhook was down, or a kubelet runs them by itself."""

from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.model.text import plural_gpus
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.server.leader.tiers import EventRecorder


class Bypasses:
    """Tells of each such pod once. Another leader tells of it again, with the same event, which is then not new.

    Pods that the ledger lists when they are first seen were let in to be counted only, and carry no labels either.
    """

    def __init__(self, world: World, teller: EventRecorder) -> None:
        self._world = world
        self._teller = teller
        self._told: set[Uid] = set()

    def look(self) -> None:
        """Find the pods that have come since the last look."""
        found = set(self._world.without_decision())
        for uid in found - self._told:
            pod = self._world.pod(uid)
            if pod is not None and not self._world.tenancy(pod.namespace).is_exempt and not self._world.is_assumed(uid):
                self._tell(pod)
        self._told = found

    def excuse(self) -> None:
        """Say nothing of the pods that are there: they came while nothing was enforced."""
        self._told = {pod.uid for pod in self._world.pods()}

    def _tell(self, pod: Resident) -> None:
        team = self._world.tenancy(pod.namespace).team_name
        text = (
            f"holds {plural_gpus(pod.demand.gpus)} that Fairgate did not decide on; they are charged to team {team}. "
            "A pod of a DaemonSet, with a nodeName or of another scheduler is never labelled; any other was made past "
            "Fairgate's webhook"
        )
        about = ObjectRef("Pod", pod.namespace, pod.name, pod.uid)
        self._teller.tell(Event(about, EventType.WARNING, EventReason.BYPASSED_ADMISSION, "Count", text))
