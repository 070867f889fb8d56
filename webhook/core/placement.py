"""Where a pod should go: filter, then score.

The score is what a class of nodes costs the pod (ranking.py): GPUs made useless to the pods to come, a node shared with
the other tier, and a little of what is left over. Wholly free nodes come last while no more than `keep_whole` of them
are left. A further term of the score belongs into `Cost`, and what it depends on into `Kind`.
"""

from typing import Final

from webhook.core.demand import Demand
from webhook.core.fleet import Fleet
from webhook.core.index import lowest_slots
from webhook.core.names import NodeName
from webhook.core.ranking import NUMBER, NUMBER_BITS
from webhook.core.tier import Tier

_FEW: Final = 16
"""Where so few nodes have room their classes are looked up, instead of met on the way through all."""


def best_nodes(
    fleet: Fleet,
    demand: Demand,
    among: int,
    *,
    count: int,
    tier: Tier = Tier.GUARANTEED,
    keep_whole: int = 0,
) -> tuple[NodeName, ...]:
    """List up to `count` nodes of a set of slots that have room, the best first; ties by slot, so by name.

    A pod without GPUs goes where there are none first.
    """
    usable = among & fleet.open_bits
    room = fleet.with_room(demand, usable)
    if not room:
        return ()
    slots: list[int] = []
    if demand.devices or demand.per_device is not None:
        _fill(slots, fleet, demand, usable, room, count=count, tier=tier, keep_whole=keep_whole)
        return fleet.names(slots)
    beside = room & ~fleet.gpus.bits
    lowest_slots(beside, count, slots)
    if room != beside:
        _fill(slots, fleet, demand, usable, room ^ beside, count=count, tier=tier, keep_whole=keep_whole)
    return fleet.names(slots)


def _fill(
    slots: list[int],
    fleet: Fleet,
    demand: Demand,
    usable: int,
    room: int,
    *,
    count: int,
    tier: Tier,
    keep_whole: int,
) -> None:
    """Take slots from the nodes that have room, class by class, the cheapest first, until there are enough."""
    resource = fleet.gpus.resource_for(demand)
    if resource is None:
        return
    view = fleet.gpus.view(resource)
    ranking = view.ranking(demand, resource, tier)
    keeps = keep_whole and (view.classes.whole & usable).bit_count() <= keep_whole
    scarce = fleet.gpus.kept(ranking, resource, fleet.open_bits) if view.scarcity.groups else 0
    kept: dict[int, int] = {}
    bits = rank = 0  # nodes of one rank are gathered first, from all of its classes: ties go by slot
    few = room.bit_count() <= _FEW
    for entry in ranking.entries(view.classes.numbers(room)) if few else ranking.order:
        node_class = view.classes.all[entry & NUMBER]
        members = node_class.members & room
        if not members:
            continue
        if entry >> NUMBER_BITS != rank:
            lowest_slots(bits, count, slots)
            if len(slots) == count:
                return
            bits, rank = 0, entry >> NUMBER_BITS
        if node_class.scarce & scarce or (keeps and ranking.shape.number < node_class.kind.capacity):
            kept[rank] = kept.get(rank, 0) | members
        else:
            bits |= members
    lowest_slots(bits, count, slots)
    for members in kept.values():
        lowest_slots(members, count, slots)
