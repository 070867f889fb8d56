"""Hands pods from the watch on to the world; notices those that never passed the gate, or were deleted by force."""

from collections.abc import Callable, Iterable

from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.quota.in_flight import InFlightCharge, Unseen
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.force_deleted import lingering
from webhook.core.world.world import World


class Witness:
    """Keeps pods in the world, and reports each one that came past the gate, once.

    Not those of exempt namespaces, where that is allowed, nor those that the ledger lists: pods that Fairgate counts
    without patching them carry no label either. While policy is not enforced nobody passes it. Reports begin when it
    is told that the first lists are in.
    """

    def __init__(
        self,
        world: World,
        shadow_labels: ShadowLabels,
        *,
        report: Callable[[Resident], None],
        linger: Callable[[InFlightCharge], None],
    ) -> None:
        self._world = world
        self._onlooker = shadow_labels
        self._report = report
        self._linger = linger
        self._is_open = False

    def set_pod(self, pod: Resident) -> None:
        """Keep a pod."""
        if self._is_open and pod.team_label is None and self._is_new(pod) and self._is_bypass(pod):
            self._report(pod)
        self._onlooker.set_pod(pod)

    def remove_pod(self, uid: Uid) -> None:
        """Drop a pod."""
        self._onlooker.remove_pod(uid)

    def lose_pod(self, uid: Uid) -> None:
        """Drop a pod that is gone and was not seen to end: what its node may still run of it stays charged."""
        left = lingering(uid, self._world)
        self.remove_pod(uid)
        if left is not None:
            self._world.assume(left)
            self._linger(left)

    def open(self) -> Iterable[Resident]:
        """Begin to report; gives the pods that were there before and carry no label."""
        self._is_open = True
        return [pod for pod in self._world.pods() if pod.team_label is None and self._is_bypass(pod)]

    def _is_new(self, pod: Resident) -> bool:
        return isinstance(self._world.evidence(pod.uid), Unseen) and not self._world.is_assumed(pod.uid)

    def _is_bypass(self, pod: Resident) -> bool:
        is_counted = self._world.policy.is_enforced and bool(pod.demand.gpus)
        return is_counted and not self._world.tenancy(pod.namespace).is_exempt
