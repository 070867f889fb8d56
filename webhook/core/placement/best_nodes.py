"""The best few nodes, fallbacks, what is free.

Fallbacks of a pod's best node: where it may go if that node is lost or fills up before the pod is bound.

Nodes of one rack or of one upgrade often follow one another by name, and so by slot. The next best nodes usually do as
well, and they are the first choices of the pods that come next. So only the first fallback is the next best node; the
others are far away, and far from those of other pods.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.model.amounts import ONE_GPU, GpuModel, NodeName, ResourceName
from webhook.core.model.constraints import Tier
from webhook.core.model.demand import Demand
from webhook.core.model.gpu_shares import weight_at
from webhook.core.model.policy import Policy
from webhook.core.placement.devices import lowest_slot, lowest_slots
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import WHOLE
from webhook.core.placement.gpu_index import GpuView
from webhook.core.placement.score import NUMBER, NUMBER_BITS, NodeClass, Ranking

_NEAR: Final = 16
"""Slots on either side of the first choice that may be lost together with it: a rack."""

_STEPS: Final = (1, 7, 13)
"""What a step of one slot between two first choices is between their fallbacks: pods of one lost node go together, pods
of neighboring nodes do not meet again."""


def with_distant(
    fleet: Fleet, demand: Demand, among: int, nodes: tuple[NodeName, ...], *, count: int
) -> tuple[NodeName, ...]:
    """Add distant nodes with room, of these slots, to the best nodes until there are `count` nodes."""
    if not nodes or len(nodes) >= count:
        return nodes
    room = fleet.with_room(demand, among & fleet.open_bits)
    for name in nodes:
        room &= ~fleet.bit(name)
    first = fleet.bit(nodes[0]).bit_length() - 1
    return nodes + fleet.names(distant_slots(room, first, count - len(nodes)))


def distant_slots(room: int, first: int, count: int) -> list[int]:
    """Return up to `count` of these slots: not near the first choice while there are others, and spread by it."""
    start = max(0, first - _NEAR)
    near = ((1 << first + _NEAR + 1 - start) - 1) << start
    far = room ^ (room & near)  # `room & ~near` takes longer
    span = room.bit_length()
    found: list[int] = []
    for number in range(count):
        bits = far or room
        if not bits:
            break
        step = _STEPS[number % len(_STEPS)]
        after = (first * step + (number + 1) * span // (count + 1)) % span
        rest = bits >> after
        slot = after + lowest_slot(rest) if rest else lowest_slot(bits)
        found.append(slot)
        room ^= 1 << slot
        far &= room
    return found


# The GPUs of the nodes, by model and resource, and how useful the free ones are for future pods.
#
# Read from the classes that placement keeps by events, so that no scan is needed.


class GpuInventory(NamedTuple):
    """The GPUs of one model under one resource name, in GPU units.

    `closed` are on nodes that are cordoned, not ready or in maintenance; the other fields are about open nodes. `held`
    are free where they are kept for waiting pods, `free` those that any pod may take. Of these, `fragmented` are
    useless to future pods by the fragmentation measure; their share is the fragment rate of "Beware of Fragmentation".
    `largest` is free for one pod on one node; `whole_nodes` have all of their GPUs free.
    """

    model: GpuModel
    resource: ResourceName
    capacity: int
    closed: int
    held: int
    free: int
    fragmented: int
    largest: int
    whole_nodes: int


_Kind = tuple[GpuModel, ResourceName | None]
"""A GPU model, and the slice that a piece of `nvidia.com/gpu` is on its nodes."""


class _Free(NamedTuple):
    """Free devices in thousandths; `useful` by the fragmentation measure."""

    devices: int = 0
    useful: int = 0
    largest: int = 0


def gpu_inventory(fleet: Fleet, policy: Policy) -> Iterator[GpuInventory]:
    """Return the GPUs of all nodes; resources without a weight in policy are left out."""
    members = _members(fleet)
    held_bits = fleet.open_bits & fleet.held_bits
    usable = fleet.open_bits & ~held_bits
    free: dict[ResourceName, dict[_Kind, _Free]] = {}
    held: dict[ResourceName, dict[_Kind, _Free]] = {}
    found: dict[tuple[GpuModel, ResourceName], GpuInventory] = {}
    for (model, resource, is_packed, piece), (capacity, closed) in fleet.gpus.numbers.items():
        weight = ONE_GPU if is_packed else weight_at(resource, piece, policy.resources)
        if not weight:
            continue
        view, kind = fleet.gpus.latest(resource), (model, piece)
        if resource not in free:
            free[resource] = _free(view, members, usable)
            held[resource] = _free(view, members, held_bits)
        devices, useful, largest = free[resource].get(kind, _Free())
        part = GpuInventory(
            model,
            resource,
            capacity=int(capacity * weight),
            closed=int(closed * weight),
            held=int(held[resource].get(kind, _Free()).devices * weight) // WHOLE,
            free=int(devices * weight) // WHOLE,
            fragmented=int((devices - useful // view.fragmentation.total) * weight) // WHOLE,
            largest=int(largest * weight) // WHOLE,
            whole_nodes=(view.classes.whole & members[kind] & usable).bit_count(),
        )
        known = found.get((model, resource))
        found[model, resource] = part if known is None else _sum(known, part)
    yield from found.values()


def _sum(one: GpuInventory, other: GpuInventory) -> GpuInventory:
    """Return the GPUs of one model that some nodes offer whole, and others in parts."""
    return GpuInventory(
        one.model,
        one.resource,
        capacity=one.capacity + other.capacity,
        closed=one.closed + other.closed,
        held=one.held + other.held,
        free=one.free + other.free,
        fragmented=one.fragmented + other.fragmented,
        largest=max(one.largest, other.largest),
        whole_nodes=one.whole_nodes + other.whole_nodes,
    )


def _members(fleet: Fleet) -> dict[_Kind, int]:
    members: dict[_Kind, int] = {}
    for (model, _), bits in fleet.by_model().items():
        parts: list[tuple[ResourceName | None, int]] = [(None, bits & ~fleet.slices.slots)]
        parts += fleet.slices.among(bits).items()
        for piece, slots in parts:
            members[model, piece] = members.get((model, piece), 0) | slots
    return members


def _free(view: GpuView, members: dict[_Kind, int], among: int) -> dict[_Kind, _Free]:
    found = dict.fromkeys(members, _Free())
    for each in view.classes.all if among else ():
        left = each.members & among
        devices = each.kind.devices
        for kind, bits in members.items() if left else ():
            if number := (left & bits).bit_count():
                total, useful, largest = found[kind]
                found[kind] = _Free(
                    total + number * (devices.whole * WHOLE + sum(devices.partly)),
                    useful + number * each.useful,
                    max(largest, devices.whole * WHOLE, *devices.partly),
                )
                left &= ~bits
                if not left:
                    break
    return found


# Where a pod should go: filter, then score.
#
# The score of a node class is what it costs the pod: GPUs made useless to future pods, a node shared with the other
# tier, and a small part for what is left over. Wholly free nodes come last while at most `keep_whole` of them are left.
# A further term of the score belongs into `Cost`, and its inputs into `NodeClassKey`.


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
