"""Pods that were deleted by force: the API server removed them, but their nodes may still run them.

kubelet ends such a pod within the grace period of its spec, as after a normal deletion, and nothing in the API reports
when (kubelet, pod_workers.go, calculateEffectiveGracePeriod). Until then it holds its GPUs, so it is charged.
"""

from dataclasses import replace
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.model.pod import NO_LABELS
from webhook.core.model.tier import TIERS
from webhook.core.quota.in_flight import Alive, InFlightCharge
from webhook.core.world.world import World

LONGEST_SECONDS: Final = 86_400
"""The longest grace period that policy may allow: no charge stays longer, even if the pod's spec says so."""

MARGIN_SECONDS: Final = 5
"""Added to the grace period: kubelet learns of the deletion late, and gives a container two seconds after its hook."""


def lingering(uid: Uid, world: World) -> InFlightCharge | None:
    """Return the charge that remains of a deleted pod not seen to end; None where its node runs nothing of it.

    It is a separate charge with its own UID: the pod itself has ended for the ledger.
    """
    pod, charge = world.pod(uid), world.charge_of(uid)
    if pod is None or pod.node is None or charge is None or not isinstance(world.evidence(uid), Alive):
        return None
    if world.tenancy(pod.namespace).is_exempt:
        return None
    left = pod._replace(
        uid=Uid(f"{uid}/lingers"),
        is_terminating=True,
        tier_label=charge.tier.value if pod.tier_label in TIERS else None,
        demand=replace(pod.demand, strange=(), own=None),  # as it was counted: its claims are gone
        claims=(),
        shares_by="",
        admitted=None,
        packed=NO_LABELS,
        anti_affinity_rules=(),
    )
    return InFlightCharge(left, charge, pod.node, min(max(pod.grace_seconds, 0), LONGEST_SECONDS) + MARGIN_SECONDS)
