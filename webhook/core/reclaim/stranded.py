"""Stranded pods: they wait for nodes that cannot take them, while other nodes could.

The webhook restricts a pod to the best few nodes by name. If all of them go, are cordoned, fill up or get pods that
exclude it before it is scheduled, it waits for ever beside free GPUs: only a new pod gets a new choice.
"""

from typing import Final

from webhook.core.model.selector import Constraints
from webhook.core.peers.topology_filter import TopologyRequest, evaluate_topology
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.world.world import World

STRANDED_SECONDS: Final = 60
"""How long a pod waits before it counts as stranded, by default: a node that restarts is back by then, or has room."""


def is_stranded(
    gpu_pod: ReclaimPod, world: World, *, now: int, held: int = 0, after_seconds: int = STRANDED_SECONDS
) -> bool:
    """Whether a pod has waited long enough for nodes that cannot take it, while another node could.

    `held` are nodes whose room is held for other pods.
    """
    if gpu_pod.is_gated or gpu_pod.pod.node is not None or now < gpu_pod.pod.created + after_seconds:
        return False
    own = gpu_pod.constraints
    loose = own.without_choice(gpu_pod.chosen)
    return loose != own and not _taking(gpu_pod, own, world) and bool(_taking(gpu_pod, loose, world) & ~held)


def _taking(gpu_pod: ReclaimPod, constraints: Constraints, world: World) -> int:
    """Return the slots that could take a pod with these constraints now."""
    fleet, pod = world.fleet, gpu_pod.pod
    slots = fleet.with_room(pod.demand, fleet.matching(constraints) & fleet.open_bits)
    if slots and (gpu_pod.topology or world.pod_counts.against(pod.namespace, gpu_pod.labels)):
        request = TopologyRequest(pod.namespace, gpu_pod.labels, gpu_pod.topology, constraints)
        if world.pod_counts.are_costly(pod.namespace, gpu_pod.topology):
            return 0
        slots &= evaluate_topology(request, fleet, world.pod_counts).allowed
    return slots
