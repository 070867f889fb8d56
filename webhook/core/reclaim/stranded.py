"""Stranded pods: they wait for nodes that cannot take them, while other nodes could.

The webhook restricts a pod to the best few nodes by name. If all of them go, are cordoned, fill up, get pods that
exclude it, or are refused by kube-scheduler for a cause that is not seen, it waits forever beside free GPUs: only a new
pod gets a new choice. So does a pod inside its guaranteed share beside GPUs that others borrow on other nodes.
"""

from collections.abc import Callable
from typing import Final

from webhook.core.model.demand import Demand
from webhook.core.model.selector import Constraints
from webhook.core.model.tier import Tier
from webhook.core.peers.topology_filter import TopologyRequest, evaluate_topology
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.refused_nodes import RefusedNodes
from webhook.core.world.world import World

STRANDED_SECONDS: Final = 60
"""How long a pod waits before it counts as stranded, by default: a node that restarts is back by then, or has room."""


def _never(_demand: Demand, _slots: int) -> bool:
    return False


def is_stranded(
    gpu_pod: ReclaimPod,
    world: World,
    *,
    now: int,
    held: int = 0,
    could_hold: Callable[[Demand, int], bool] = _never,
    after_seconds: int = STRANDED_SECONDS,
) -> bool:
    """Whether a pod has waited long enough for nodes that cannot take it, while another node could.

    `held` are nodes whose room is held for other pods. `could_hold` says whether one of some slots would have room for
    a demand if borrowing pods on it were evicted.
    """
    if gpu_pod.is_gated or gpu_pod.pod.node is not None or now < gpu_pod.pod.created + after_seconds:
        return False
    own = gpu_pod.constraints
    loose = own.without_choice(gpu_pod.chosen)
    taking = _taking(gpu_pod, own, world)
    refused = RefusedNodes(now=now, changes=world.rejecting_nodes.changes).among(taking, gpu_pod, world.fleet)
    if loose == own or taking & ~refused:
        return False
    if _taking(gpu_pod, loose, world) & ~(held | refused):
        return True
    if gpu_pod.pod.tier is not Tier.GUARANTEED or gpu_pod.topology:
        return False
    fleet, demand = world.fleet, gpu_pod.pod.demand
    chosen, all_ = (fleet.matching(each) & fleet.open_bits & ~refused for each in (own, loose))
    return not could_hold(demand, chosen) and could_hold(demand, all_ & ~held)


def _taking(gpu_pod: ReclaimPod, constraints: Constraints, world: World) -> int:
    """Return the slots that could take a pod with these constraints now."""
    fleet, pod = world.fleet, gpu_pod.pod
    closed = world.rejecting_nodes.avoided(gpu_pod.team, pod, fleet).closed
    slots = fleet.with_room(pod.demand, fleet.matching(constraints) & fleet.open_bits & ~closed)
    if slots and (gpu_pod.topology or world.pod_counts.against(pod.namespace, gpu_pod.labels)):
        request = TopologyRequest(pod.namespace, gpu_pod.labels, gpu_pod.topology, constraints)
        if world.pod_counts.are_costly(pod.namespace, gpu_pod.topology):
            return 0
        slots &= evaluate_topology(request, fleet, world.pod_counts).allowed
    return slots
