"""Pods that were deleted by force: the API server forgot them, and their nodes may still run them.

kubelet ends such a pod by the grace period of its spec, as if it had been deleted in the usual way, and nothing in the
API tells when (kubelet, pod_workers.go, calculateEffectiveGracePeriod). Until then it holds its GPUs, so it is charged.
"""

from dataclasses import replace
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.model.pod import NO_LABELS
from webhook.core.model.tier import TIERS
from webhook.core.quota.in_flight import Alive, InFlightCharge
from webhook.core.world.world import World

LONGEST_SECONDS: Final = 86_400
"""The most that policy may allow as a grace period, so that no charge stays for longer whatever the pod says."""

MARGIN_SECONDS: Final = 5
"""Added to the grace period: kubelet must hear of the deletion, and gives a container two seconds after its hook."""


def lingering(uid: Uid, world: World) -> InFlightCharge | None:
    """Tell what stays charged of a pod that is deleted and was not seen to end; None where its node runs nothing of it.

    It is a charge of its own, with a UID of its own: what is known of the pod itself is over.
    """
    pod, charge = world.pod(uid), world.charge_of(uid)
    if pod is None or pod.node is None or charge is None or not isinstance(world.evidence(uid), Alive):
        return None
    if world.tenancy(pod.namespace).is_exempt:
        return None
    left = replace(
        pod,
        uid=Uid(f"{uid}/lingers"),
        is_terminating=True,
        tier_label=charge.tier.value if pod.tier_label in TIERS else None,
        demand=replace(pod.demand, strange=(), own=None),  # as it was counted: its claims are over
        claims=(),
        shares_by="",
        admitted=None,
        packed=NO_LABELS,
        anti_affinity_rules=(),
    )
    return InFlightCharge(left, charge, pod.node, min(max(pod.grace_seconds, 0), LONGEST_SECONDS) + MARGIN_SECONDS)
