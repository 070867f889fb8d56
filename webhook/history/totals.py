"""What a meter measured since its start, and what it measures now, as metrics."""

from collections.abc import Iterator
from typing import Final

from webhook.core.model.amount import ONE_GPU
from webhook.core.model.policy import Policy
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.history.meter import Meter, department_paths
from webhook.history.usage_row import Kind
from webhook.observe import usage_metrics
from webhook.observe.gpu_time import GpuHolder, NodeGpus
from webhook.observe.usage_metrics import UsageTotal

_TIERS: Final = {Kind.HELD_GUARANTEED: Tier.GUARANTEED, Kind.HELD_BORROWED: Tier.PREEMPTIBLE}


def totals_of(meter: Meter, policy: Policy) -> Iterator[UsageTotal]:
    """Yield the sums by team, department and model; metrics have no users."""
    paths = department_paths(policy)
    for key, amount in list(meter.totals.items()):
        where = (key.team, paths.get(key.team, ""))
        match key.kind:
            case Kind.OBSERVED:
                yield UsageTotal(usage_metrics.OBSERVED, (), amount)
            case Kind.REFUSED:
                yield UsageTotal(usage_metrics.REFUSED, where, amount)
            case Kind.REFUSED_GPUS:
                yield UsageTotal(usage_metrics.REFUSED_GPUS, where, amount)
            case _:
                yield UsageTotal(usage_metrics.GPU_SECONDS, (key.kind, *where, key.model), amount)


def gpu_seconds_of(meter: Meter) -> dict[GpuHolder, float]:
    """Return what pods held on nodes, by team, model and tier."""
    held: dict[GpuHolder, float] = {}
    for key, amount in list(meter.totals.items()):
        if (tier := _TIERS.get(key.kind)) is not None:
            held[GpuHolder(key.team, key.model, tier.value)] = amount
    return held


def nodes_of(meter: Meter, world: World) -> list[NodeGpus]:
    """Return the GPUs of each node that has some, as policy weighs them, and how many of them pods hold."""
    found = []
    for node in world.fleet.nodes():
        if capacity := node.gpus(world.policy.resources):
            used = meter.held_on.get(node.name, 0)
            found.append(NodeGpus(node.name, node.model, float(capacity / ONE_GPU), float(used / ONE_GPU)))
    return found
