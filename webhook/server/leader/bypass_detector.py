"""Passes watched pods to the world; detects those that bypassed the webhook, and those that were deleted by force."""

from collections.abc import Callable, Iterable

from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.quota.in_flight import InFlightCharge, Unseen
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.force_deleted import lingering
from webhook.core.world.world import World


class BypassDetector:
    """Stores pods in the world, and reports each one that bypassed the webhook, once.

    Pods of exempt namespaces may bypass it. Pods in the ledger did not: Fairgate counts some pods without patching
    them, and these have no label either. While the policy is not enforced, no pod is reported. Reports begin with
    `start`, after the first lists.
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
        self._shadow_labels = shadow_labels
        self._report = report
        self._linger = linger
        self._is_started = False

    def set_pod(self, pod: Resident) -> None:
        """Store a pod."""
        if self._is_started and pod.team_label is None and self._is_new(pod) and self._is_bypass(pod):
            self._report(pod)
        self._shadow_labels.set_pod(pod)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod."""
        self._shadow_labels.remove_pod(uid)

    def delete_pod(self, uid: Uid, *, is_watched: bool) -> None:
        """Remove a pod that was deleted before its end was seen: GPUs that its node may still use stay charged.

        `is_watched` as in `lingering`.
        """
        charge = lingering(uid, self._world, is_watched=is_watched)
        self.remove_pod(uid)
        if charge is not None:
            self._world.assume(charge)
            self._linger(charge)

    def start(self) -> Iterable[Resident]:
        """Start to report, and return the existing pods without a label."""
        self._is_started = True
        return [pod for pod in self._world.pods() if pod.team_label is None and self._is_bypass(pod)]

    def _is_new(self, pod: Resident) -> bool:
        return isinstance(self._world.evidence(pod.uid), Unseen) and not self._world.is_assumed(pod.uid)

    def _is_bypass(self, pod: Resident) -> bool:
        is_counted = self._world.policy.is_enforced and bool(pod.demand.gpus)
        return is_counted and not self._world.tenancy(pod.namespace).is_exempt
