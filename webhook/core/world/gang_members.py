"""The members of gangs that exist and do not wait in line, kept by events."""

from webhook.core.model.names import GangId, Uid
from webhook.core.model.pod import Resident


class GangMembers:
    """Pods by gang: those with GPUs, by which a gang has started, and those without, which only count as come.

    Pods that are being deleted are left out: a workload that is created again under its name is another gang.
    """

    def __init__(self) -> None:
        self._gang_of: dict[Uid, GangId] = {}
        self._started: dict[GangId, set[Uid]] = {}
        self._others: dict[GangId, set[Uid]] = {}

    def has_started(self, gang: GangId) -> bool:
        """Whether a pod of the gang that needs GPUs exists and does not wait in line."""
        return gang in self._started

    def first(self, gang: GangId) -> Uid | None:
        """Return a pod by which the gang has started; None where it has not."""
        return min(self._started.get(gang, ()), default=None)

    def others(self, gang: GangId) -> int:
        """Return how many pods of the gang exist that need no GPUs."""
        return len(self._others.get(gang, ()))

    def set(self, pod: Resident) -> None:
        """Add or update a pod."""
        if pod.gang is None and pod.uid not in self._gang_of:
            return
        self.discard(pod.uid)
        if pod.gang is not None and not pod.is_terminating:
            table = self._started if pod.demand.gpus or pod.claims else self._others
            table.setdefault(pod.gang, set()).add(pod.uid)
            self._gang_of[pod.uid] = pod.gang

    def discard(self, uid: Uid) -> None:
        """Remove a pod; one that is in no gang changes nothing."""
        gang = self._gang_of.pop(uid, None)
        if gang is None:
            return
        for table in (self._started, self._others):
            members = table.get(gang)
            if members is not None:
                members.discard(uid)
                if not members:
                    del table[gang]
