"""Where a pod should go: filter, then score.

The score is what a class of nodes costs the pod (ranking.py): GPUs made useless to the pods to come, a node shared with
the other tier, and a little of what is left over. Wholly free nodes come last while no more than `keep_whole` of them
are left. A further term of the score belongs into `Cost`, and what it depends on into `Kind`.
"""

from typing import Final

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.tier import Tier
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.node_classes import NodeClass
from webhook.core.placement.score import NUMBER, NUMBER_BITS, Ranking
from webhook.core.placement.slot_index import lowest_slots

_FEW: Final = 16
"""Where so few nodes have room, and there are more classes, those of the nodes are looked up."""


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

    A pod without GPUs goes where there are none first, then by the classes of one GPU resource, then where others are.
    """
    usable = among & fleet.open_bits
    room = fleet.with_room(demand, usable)
    if not room:
        return ()
    slots: list[int] = []
    if demand.devices or demand.per_device is not None:
        _fill(slots, fleet, demand, usable, room, count=count, tier=tier, keep_whole=keep_whole)
        return fleet.names(slots)
    with_gpus = room & fleet.gpus.bits
    lowest_slots(room ^ with_gpus, count, slots)
    if with_gpus:
        _fill(slots, fleet, demand, usable, with_gpus, count=count, tier=tier, keep_whole=keep_whole)
        if len(slots) < count:
            lowest_slots(_unranked(fleet, demand, with_gpus), count, slots)
    return fleet.names(slots)


def _unranked(fleet: Fleet, demand: Demand, room: int) -> int:
    """Keep the nodes of which no class was ranked: their GPUs are of other resources than the one looked at."""
    resource = fleet.gpus.resource_for(demand)
    if resource is not None:
        for node_class in fleet.gpus.view(resource).classes.all:
            room &= ~node_class.members
    return room


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
    spared: _Spared | None = None
    number = ranking.shape.number
    kept: dict[int, int] = {}
    bits = rank = 0  # nodes of one rank are gathered first, from all of its classes: ties go by slot
    classes = view.classes
    few = len(ranking) > _FEW and room.bit_count() <= _FEW
    for entry in ranking.entries_of(classes.numbers(room)) if few else ranking.entries():
        node_class = classes.all[entry & NUMBER]
        members = node_class.members & room
        if not members:
            continue
        if entry >> NUMBER_BITS != rank:
            if bits:
                lowest_slots(bits, count, slots)
                if len(slots) == count:
                    return
            bits, rank = 0, entry >> NUMBER_BITS
        if node_class.scarce or node_class.kind.capacity > number:
            spared = spared or _Spared(fleet, resource, ranking, usable, keep_whole)
            if spared.has(node_class):
                kept[rank] = kept.get(rank, 0) | members
                continue
        bits |= members
    lowest_slots(bits, count, slots)
    for members in kept.values():
        lowest_slots(members, count, slots)


class _Spared:
    """The classes that a pod takes last. Asked when one is met: to count nodes costs more than to meet a class."""

    __slots__ = ("_fleet", "_keep_whole", "_keeps", "_ranking", "_resource", "_scarce", "_usable")

    def __init__(self, fleet: Fleet, resource: ResourceName, ranking: Ranking, usable: int, keep_whole: int) -> None:
        self._fleet, self._resource, self._ranking, self._usable = fleet, resource, ranking, usable
        self._keep_whole = keep_whole
        self._keeps: bool | None = None
        self._scarce: int | None = None

    def has(self, node_class: NodeClass) -> bool:
        """Tell whether a class is wholly free while few are, or kept for scarce sizes."""
        gpus = self._fleet.gpus
        if node_class.scarce:
            if self._scarce is None:
                self._scarce = gpus.kept(self._ranking, self._resource, self._fleet.open_bits)
            if node_class.scarce & self._scarce:
                return True
        if not self._keep_whole or node_class.kind.capacity <= self._ranking.shape.number:
            return False
        if self._keeps is None:
            whole = gpus.view(self._resource).classes.whole & self._usable
            self._keeps = whole.bit_count() <= self._keep_whole
        return self._keeps
