"""What pods lack on a node or on several: the amounts that victims must free there."""

from collections import Counter
from collections.abc import Mapping, Sequence

from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.cost_scale import Need


def shortfall(fleet: Fleet, demands: Mapping[NodeName, Sequence[Demand]]) -> Need:
    """Return what is missing for all of these pods on their nodes; only a pod that is alone may ask for devices."""
    amounts: dict[tuple[NodeName, ResourceName], Units] = {}
    gpus: Units = 0
    for node, there in demands.items():
        wanted: Counter[ResourceName] = Counter()
        for demand in there:
            wanted.update(dict(demand.requests))
        for resource, amount in wanted.items():
            if (missing := amount - fleet.free(node, resource)) > 0:
                amounts[node, resource] = missing
        gpus += missing_gpus(fleet, node, there)
    (first, *_), *_ = demands.values()
    return Need(amounts, gpus, first.per_device)


def missing_gpus(fleet: Fleet, node: NodeName, demands: Sequence[Demand]) -> Units:
    """Return how many GPU units pods of one resource each lack on a node; 0 is always a valid lower bound.

    On slices each piece is less than the pod counts, if the pod may get whole GPUs.
    """
    if fleet.slices.slots and fleet.bit(node) & fleet.slices.slots:
        return 0
    if len(demands) == 1:
        held = demands[0].held
        if len(held) != 1:
            return 0
        ((resource, amount),) = held
        return max(0, amount - fleet.free(node, resource)) * (demands[0].gpus // amount)
    wanted: Counter[ResourceName] = Counter()
    weights: dict[ResourceName, Units] = {}
    for demand in demands:
        held = demand.held
        if len(held) == 1:
            ((resource, amount),) = held
            wanted[resource] += amount
            weights[resource] = demand.gpus // amount
    return sum(max(0, amount - fleet.free(node, name)) * weights[name] for name, amount in wanted.items())


def missing_on(fleet: Fleet, among: int, demand: Demand) -> list[tuple[NodeName, Units]]:
    """Return the same for one pod on each of these slots."""
    held = demand.held
    if len(held) != 1:
        return [(node, 0) for node in fleet.names_of(among)]
    ((resource, amount),) = held
    each, sliced = demand.gpus // amount, among & fleet.slices.slots
    missing: list[tuple[NodeName, Units]] = [
        (node, (amount - free) * each if free < amount else 0) for node, free in fleet.free_on(among ^ sliced, resource)
    ]
    return missing + [(node, 0) for node in fleet.names_of(sliced)] if sliced else missing
