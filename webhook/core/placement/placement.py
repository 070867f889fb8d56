"""Where a pod should go: filter, then score.

The score of a node class is what it costs the pod: GPUs made useless to future pods, a node shared with the other tier,
and a small part for what is left over. Wholly free nodes come last while at most `keep_whole` of them are left. A
further term of the score belongs into `Cost`, and its inputs into `NodeClassKey`.
"""

from typing import Final

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.tier import Tier
from webhook.core.placement.fallbacks import distant_slots
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.node_classes import NodeClass
from webhook.core.placement.score import NUMBER, NUMBER_BITS, Ranking
from webhook.core.placement.slot_index import lowest_slots

_FEW_NODES: Final = 16
"""Where at most this many nodes have room, and there are more classes, only the classes of these nodes are ranked."""


def best_nodes(
    fleet: Fleet,
    demand: Demand,
    among: int,
    *,
    count: int,
    tier: Tier = Tier.GUARANTEED,
    keep_whole: int = 0,
    listed: int = 0,
) -> tuple[NodeName, ...]:
    """Return up to `count` of these slots' nodes with room, the best first; ties by slot, so by name.

    Distant fallbacks are added to them until there are `listed` nodes. A pod without GPUs goes to nodes without GPUs
    first, then by the classes of one GPU resource, then to other GPU nodes.
    """
    usable = among & fleet.open_bits
    room = fleet.with_room(demand, usable)
    if not room:
        return ()
    slots: list[int] = []
    if demand.devices or demand.per_device is not None:
        _fill(slots, fleet, demand, usable, room, count=count, tier=tier, keep_whole=keep_whole)
        if not slots:  # all devices there are tainted, and the pod tolerates that: nothing else is ranked by them
            lowest_slots(room, count, slots)
    else:
        with_gpus = room & fleet.gpus.bits
        lowest_slots(room ^ with_gpus, count, slots)
        if with_gpus:
            _fill(slots, fleet, demand, usable, with_gpus, count=count, tier=tier, keep_whole=keep_whole)
            if len(slots) < count:
                lowest_slots(_unranked(fleet, demand, with_gpus), count, slots)
    if slots and len(slots) < listed:
        for slot in slots:
            room ^= 1 << slot
        slots += distant_slots(room, slots[0], listed - len(slots))
    return fleet.names(slots)


def _unranked(fleet: Fleet, demand: Demand, room: int) -> int:
    """Return the nodes without a ranked class: their GPUs are of other resources than the ranked one."""
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
    """Append slots with room, class by class, the cheapest first, until there are enough."""
    resource = fleet.gpus.resource_for(demand)
    if resource is None:
        return
    view = fleet.gpus.view(resource)
    ranking = view.ranking(demand, resource, tier)
    last_classes: _LastClasses | None = None
    number = ranking.shape.number
    deferred: dict[int, int] = {}
    bits = rank = 0  # nodes of one rank are collected from all of its classes first: ties go by slot
    classes = view.classes
    is_few = len(ranking) > _FEW_NODES and room.bit_count() <= _FEW_NODES
    for entry in ranking.entries_of(classes.numbers(room)) if is_few else ranking.entries():
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
            last_classes = last_classes or _LastClasses(fleet, resource, ranking, usable, keep_whole)
            if last_classes.has(node_class):
                deferred[rank] = deferred.get(rank, 0) | members
                continue
        bits |= members
    lowest_slots(bits, count, slots)
    for members in deferred.values():
        lowest_slots(members, count, slots)


class _LastClasses:
    """The classes that a pod takes last. Evaluated when one is met: counting nodes costs more than meeting a class."""

    __slots__ = ("_fleet", "_keep_whole", "_keeps_whole", "_ranking", "_resource", "_scarce", "_usable")

    def __init__(self, fleet: Fleet, resource: ResourceName, ranking: Ranking, usable: int, keep_whole: int) -> None:
        self._fleet, self._resource, self._ranking, self._usable = fleet, resource, ranking, usable
        self._keep_whole = keep_whole
        self._keeps_whole: bool | None = None
        self._scarce: int | None = None

    def has(self, node_class: NodeClass) -> bool:
        """Whether a class is wholly free while few are, or reserved for scarce sizes."""
        gpus = self._fleet.gpus
        if node_class.scarce:
            if self._scarce is None:
                self._scarce = gpus.reserved_groups(self._ranking, self._resource, self._fleet.open_bits)
            if node_class.scarce & self._scarce:
                return True
        if not self._keep_whole or node_class.kind.capacity <= self._ranking.shape.number:
            return False
        if self._keeps_whole is None:
            whole = gpus.view(self._resource).classes.whole & self._usable
            self._keeps_whole = whole.bit_count() <= self._keep_whole
        return self._keeps_whole
