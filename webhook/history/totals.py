"""What a meter measured since its start, and what it measures now, as metrics."""

from typing import Final

from webhook.core.explain.cluster_use import ClusterUse, capacities
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.node import NO_MODEL
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.history.meter import Meter
from webhook.history.usage_row import OF_EVICTIONS, UsageKind
from webhook.observe.gpu_time import EvictedGpus, GpuHolder, NodeGpus

_TIERS: Final = {UsageKind.HELD_GUARANTEED: Tier.GUARANTEED, UsageKind.HELD_PREEMPTIBLE: Tier.PREEMPTIBLE}


def gpu_seconds_of(meter: Meter) -> dict[GpuHolder | EvictedGpus, float]:
    """Return what pods held on nodes, by team, model and tier, and what evictions of pods lost and saved, by team."""
    found: dict[GpuHolder | EvictedGpus, float] = {}
    for key, amount in list(meter.totals.items()):
        if (tier := _TIERS.get(key.kind)) is not None:
            found[GpuHolder(key.team, key.model, tier.value)] = amount
            for kind in OF_EVICTIONS:  # a series starts at 0, as `increase` requires
                found.setdefault(EvictedGpus(key.team, kind.value), 0.0)
        elif key.kind in OF_EVICTIONS:
            work = EvictedGpus(key.team, key.kind.value)
            found[work] = found.get(work, 0.0) + amount
    return found


def nodes_of(meter: Meter, world: World) -> list[NodeGpus]:
    """Return the GPUs of each node that has some, as policy weighs them, and how many of them pods hold."""
    found, held_on = [], meter.on_nodes.held_on
    for name, capacity in capacities(world.fleet.nodes(), world.policy).items():
        node, used = world.fleet.get(name), held_on.get(name, 0)
        model = NO_MODEL if node is None else node.model
        found.append(NodeGpus(name, model, float(capacity / ONE_GPU), float(used / ONE_GPU)))
    return found


def use_of(meter: Meter, world: World) -> ClusterUse:
    """Return how the nodes are used now."""
    return meter.on_nodes.use(capacities(world.fleet.nodes(), world.policy))
