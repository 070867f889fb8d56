"""Pods that wait for nodes that will not have them, while others would.

The gate binds a pod to the best few nodes by name. If all of those went, were closed, filled up or got pods that bar
it before it was scheduled, it waits for ever beside free GPUs: only a new pod gets a new choice.
"""

from typing import Final

from webhook.core.model.selector import Constraints
from webhook.core.peers.topology_filter import TopologyRequest, evaluate_topology
from webhook.core.reclaim.reclaim_pod import Tenant
from webhook.core.world.world import World

STRANDED_SECONDS: Final = 60
"""How long a pod may wait before it counts as stranded, unless the evictor is set otherwise: a node that restarts is
back by then, or its room is."""


def is_stranded(
    tenant: Tenant, world: World, *, now: int, held: int = 0, after_seconds: int = STRANDED_SECONDS
) -> bool:
    """Tell whether a pod has waited long enough for nodes that will not have it, while another one would.

    `held` are nodes whose room is kept for others.
    """
    if tenant.is_gated or tenant.pod.node is not None or now < tenant.pod.created + after_seconds:
        return False
    own = tenant.constraints
    loose = own.without_choice(tenant.chosen)
    return loose != own and not _taking(tenant, own, world) and bool(_taking(tenant, loose, world) & ~held)


def _taking(tenant: Tenant, constraints: Constraints, world: World) -> int:
    """List the slots that would take a pod now, if it demanded this of a node."""
    fleet, pod = world.fleet, tenant.pod
    slots = fleet.with_room(pod.demand, fleet.matching(constraints) & fleet.open_bits)
    if slots and (tenant.topology or world.pod_counts.against(pod.namespace, tenant.labels)):
        asker = TopologyRequest(pod.namespace, tenant.labels, tenant.topology, constraints)
        if world.pod_counts.are_costly(pod.namespace, tenant.topology):
            return 0
        slots &= evaluate_topology(asker, fleet, world.pod_counts).allowed
    return slots
