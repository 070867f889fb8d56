"""The nodes that a pod may use, full or not: by its pools, its constraints, the rules of other pods, and kubelets."""

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.placement_options import placement_options
from webhook.core.model.selector import NO_CONSTRAINTS
from webhook.core.peers.topology_filter import TopologyRequest, evaluate_topology
from webhook.core.world.world import World


def usable_nodes(assessed: Assessment, world: World, *, held: int = 0) -> int:
    """Return the slots that a pod may use where it counts as it does now; 0 where no placement follows.

    Left out are closed nodes, those that are `held` for other pods, and those that reject its team's pods.
    """
    if assessed.early_decision is not None:
        return 0
    pod, found, fleet = assessed.pod, 0, world.fleet
    for option in placement_options(pod, assessed.pools.allowed, assessed, world):
        if option.demand == pod.demand:
            found |= option.slots
    found &= fleet.open_bits & ~(held | fleet.held_bits)
    found &= ~world.rejecting_nodes.avoided(assessed.team.name, pod, fleet).closed
    if not (pod.topology or world.pod_counts.against(pod.namespace, pod.labels)):
        return found
    if world.pod_counts.are_costly(pod.namespace, pod.topology):
        return 0
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, NO_CONSTRAINTS)
    return found & evaluate_topology(request, fleet, world.pod_counts).allowed
