"""Pods that were deleted by force: the API server removed them, but their nodes may still run them.

kubelet ends such a pod within the grace period of its spec, as after a normal deletion, and nothing in the API reports
when (kubelet, pod_workers.go, calculateEffectiveGracePeriod). Until then it holds its GPUs, so it is charged. That
charge borrows: a pod that is gone uses no guaranteed share.
"""

from dataclasses import replace
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.model.pod import NO_LABELS, Resident
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import Alive, InFlightCharge
from webhook.core.world.pod_stages import is_lost
from webhook.core.world.world import World

LONGEST_SECONDS: Final = 86_400
"""The longest grace period that policy may allow: no charge stays longer, even if the pod's spec says so."""

UNACKNOWLEDGED_SECONDS: Final = 10
"""The longest grace period that counts for a pod of which no kubelet had reported anything.

kubelet reports a pod's start time when it begins with it, before its volumes and containers (kubelet.go, SyncPod), and
repeats a failed report every ten seconds (status_manager.go, syncPeriod); pods with GPUs are never too large for that.
One without a report was never begun, or it was begun while its report was on its way: a container that has just
started, and ignores SIGTERM, runs uncharged for the rest of its grace period.
"""

REPORTED_SECONDS: Final = 5
"""A pod that was there for longer on a node that is ready counts as reported: its kubelet may be late, with the reports
of a hundred other pods, and had time to start containers."""

MARGIN_SECONDS: Final = 5
"""Added to the grace period: kubelet learns of the deletion late, and gives a container two seconds after its hook."""


def lingering(uid: Uid, world: World, *, is_watched: bool) -> InFlightCharge | None:
    """Return the charge that remains of a deleted pod not seen to end; None where its node runs nothing of it.

    It is a separate charge with its own UID: the pod itself has ended for the ledger. `is_watched`: every state of the
    pod was seen. If no kubelet had acknowledged it then, it takes no room on its node.
    """
    pod, charge = world.pod(uid), world.charge_of(uid)
    if pod is None or pod.node is None or charge is None or not isinstance(world.evidence(uid), Alive):
        return None
    if world.tenancy(pod.namespace).is_exempt:
        return None
    is_acknowledged = pod.is_acknowledged or not is_watched or _is_report_late(pod, world)
    node = pod.node if is_acknowledged else None
    left = pod._replace(
        uid=Uid(f"{uid}/lingers"),
        node=node,
        is_terminating=True,
        tier_label=Tier.PREEMPTIBLE.value,
        demand=replace(pod.demand, strange=(), own=None),  # as it was counted: its claims are gone
        claims=(),
        shares_by="",
        admitted=None,
        packed=NO_LABELS,
        anti_affinity_rules=(),
    )
    longest = LONGEST_SECONDS if is_acknowledged else UNACKNOWLEDGED_SECONDS
    seconds = min(max(pod.grace_seconds, 0), longest) + MARGIN_SECONDS
    return InFlightCharge(left, charge._replace(tier=Tier.PREEMPTIBLE), node, seconds)


def _is_report_late(pod: Resident, world: World) -> bool:
    node = None if pod.node is None else world.fleet.get(pod.node)
    return not is_lost(node) and world.now - pod.created > REPORTED_SECONDS
