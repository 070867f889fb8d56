"""Classes of equal nodes, ranked.

Node classes: nodes with the same free devices and room for the same sizes of the demand mix.

All nodes of a class cost a pod the same, so classes are scored, not nodes. Members are a bitmap of slots.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from webhook.core.model.constraints import Tier
from webhook.core.model.demand import Shape
from webhook.core.placement.devices import AmountIndex, DeviceStates, Remainder, free_of
from webhook.core.placement.fragmentation import (
    TIER_MIX_COST,
    WEIGHT,
    WHOLE,
    DeviceState,
    Fragmentation,
    NodeRoom,
    Scarcity,
    Tiers,
)


class NodeClassKey(NamedTuple):
    """The key of a class: free devices, and the marks that free cpu and memory reach, by position.

    `capacity` is the number of devices where all of them are free, otherwise 0. `tiers` are those of the pods on the
    node.
    """

    devices: DeviceState
    cpu: int
    memory: int
    capacity: int
    tiers: Tiers


class NodeClass:
    """A class: how useful its free devices are, which groups of scarce sizes fit, and its members."""

    __slots__ = ("free", "kind", "members", "scarce", "state", "useful")

    def __init__(
        self, kind: NodeClassKey, fragmentation: Fragmentation, states: DeviceStates, scarcity: Scarcity
    ) -> None:
        cpu = fragmentation.cpu.fitting(fragmentation.cpu.marks[kind.cpu])
        memory = fragmentation.memory.fitting(fragmentation.memory.marks[kind.memory])
        self.kind = kind
        self.free = free_of(kind.devices)
        self.state = states.number(kind.devices)
        self.useful = states.usefulness(self.state, cpu, memory)
        self.scarce = scarcity.fitting(NodeRoom(kind.devices, cpu, memory)) if scarcity.groups else 0
        self.members = 0


class NodeClasses:
    """The node classes of one GPU resource under one demand mix, numbered in order of creation."""

    __slots__ = (
        "_class_of_slot",
        "_forecast",
        "_numbers",
        "_scarcity",
        "all",
        "cpu",
        "emptied",
        "filled",
        "live",
        "slots_with_room",
        "states",
        "whole",
    )

    def __init__(self, fragmentation: Fragmentation, states: DeviceStates, scarcity: Scarcity) -> None:
        self.all: list[NodeClass] = []
        self.live = 0  # numbers of the classes that have members, as a bitmap
        self.cpu = AmountIndex()  # classes by the mark that their nodes' free cpu reaches
        self.filled = 0  # times that a class got its first member
        self.emptied = 0  # times that a class lost its last member
        self.whole = 0  # slots with all of their devices free
        self.slots_with_room = [0] * len(scarcity.groups)  # by group of scarce sizes: the slots where they fit
        self.states = states
        self._forecast, self._scarcity = fragmentation, scarcity
        self._numbers: dict[NodeClassKey, int] = {}
        self._class_of_slot: dict[int, int] = {}

    def numbers(self, slots: int) -> set[int]:
        """Return the numbers of the classes of some slots; -1 for slots without such devices."""
        class_of_slot, found = self._class_of_slot, set()
        while slots:
            low = slots & -slots
            found.add(class_of_slot.get(low.bit_length() - 1, -1))
            slots ^= low
        return found

    def useful_at(self, slots: Sequence[int]) -> list[int]:
        """Return how useful the free devices of each of some slots are; 0 without such devices."""
        classes, number_of = self.all, self._class_of_slot
        return [classes[number].useful if (number := number_of.get(slot, -1)) >= 0 else 0 for slot in slots]

    def change(self, slot: int, bit: int, kind: NodeClassKey) -> None:
        """Move a slot (and its bit) into its class."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.all)
            self.cpu.change(number, 1 << number, kind.cpu)
            self.all.append(NodeClass(kind, self._forecast, self.states, self._scarcity))
        before = self._class_of_slot.get(slot)
        if before == number:
            return
        if before is not None:
            self._leave(before, bit)
        self._class_of_slot[slot] = number
        entered = self.all[number]
        if not entered.members:
            self.live |= 1 << number
            self.filled += 1
        entered.members |= bit
        if entered.scarce:
            self._change_slots_with_room(entered.scarce, bit)
        if kind.capacity:
            self.whole |= bit

    def drop(self, slot: int, bit: int) -> None:
        """Remove a slot: its node no longer has such devices."""
        number = self._class_of_slot.pop(slot, None)
        if number is not None:
            self._leave(number, bit)

    def _leave(self, number: int, bit: int) -> None:
        left = self.all[number]
        left.members ^= bit
        if not left.members:
            self.live ^= 1 << number
            self.emptied += 1
        if left.scarce:
            self._change_slots_with_room(left.scarce, bit)
        if left.kind.capacity:
            self.whole ^= bit

    def _change_slots_with_room(self, groups: int, bit: int) -> None:
        for number in range(len(self.slots_with_room)):
            if groups >> number & 1:
                self.slots_with_room[number] ^= bit


# The cost of each node class for a pod shape, and the classes in that order.


NUMBER_BITS: Final = 20
"""An entry is `rank << NUMBER_BITS | number of the class`; the rank is twice the cost, plus one for whole nodes."""

NUMBER: Final = (1 << NUMBER_BITS) - 1
SPARE_RANKS: Final = 64
"""Emptied classes that an order may contain before it is cleaned up, and ranks of such classes that are kept: meeting
one costs little, a pass over all more."""

_UNKNOWN: Final = Remainder(0, 0)

_GPUS_LEFT: Final = 20 * WEIGHT
_CPU_LEFT: Final = 50 * WEIGHT
"""The cost of leaving the largest node wholly free after the pod: 0.02 of a GPU for its GPUs, 0.05 for its cpu.

Measured on the openb trace beside the fragmentation gradient: 95.50 % allocated; 95.40 with 0.035 for both, 95.31 with
0.07 for the GPUs, 95.01 with nothing for them. Without any, ties open empty nodes.
"""


class Scale(NamedTuple):
    """The largest node: leftovers on other nodes count in proportion, and no other cost exceeds its cost."""

    devices: int
    cpu: int

    def covers(self, other: "Scale") -> bool:
        """Whether another node is no larger."""
        return other.devices <= self.devices and other.cpu <= self.cpu


class Cost(NamedTuple):
    """The cost of a node class for a pod, in thousandths of a GPU times WEIGHT: the lowest sum wins."""

    useless: int  # lost for future pods, taken or left without cpu, memory or room on one device
    mixing: int  # for sharing a node with the other tier
    gpus_left: int
    cpu_left: int


class Ranking:
    """The classes in the order in which one shape should take them; some of them may be empty.

    A pod without GPUs fits most classes, and a lower bound of a class's cost is faster to compute than the cost: for
    such pods classes are kept in a heap by their bound until they may be next.
    """

    __slots__ = (
        "_added",
        "_classes",
        "_cpu_fits",
        "_cpu_left",
        "_emptied_before",
        "_filled_before",
        "_floor",
        "_forecast",
        "_gpu_left",
        "_heap",
        "_heap_size_before",
        "_in_heap",
        "_memory_fits",
        "_order",
        "_ranks",
        "_remainders",
        "entitled",
        "mixing",
        "shape",
    )

    def __init__(
        self,
        shape: Shape,
        tier: Tier,
        fragmentation: Fragmentation,
        classes: NodeClasses,
        scale: Scale,
        *,
        entitled: int,
    ) -> None:
        self.shape = shape
        self.entitled = entitled  # groups of scarce sizes whose nodes this shape may use freely
        self._forecast, self._classes = fragmentation, classes
        self._floor = len(fragmentation.cpu.marks)  # the lowest cpu mark that a pod of this size has requested so far
        self._order: list[int] = []  # entries, see NUMBER_BITS
        self._heap: list[int] = []  # a heap of entries with lower bounds as ranks
        self._added = 0  # bitmap of the classes in either, or where the devices do not fit
        self._ranks: dict[int, int] = {}  # by number of the class
        self._filled_before = 0  # `classes.filled` when classes were last added
        self._emptied_before = 0  # `classes.emptied` at the last clean-up
        self._heap_size_before = 0  # size of the heap after its last clean-up
        self._in_heap = 0  # bitmap of the classes in the heap
        self._remainders = classes.states.remainders(shape)
        cpu_after = [max(0, mark - shape.cpu) for mark in fragmentation.cpu.marks]
        self._cpu_fits = [fragmentation.cpu.fitting(cpu) for cpu in cpu_after]
        self._cpu_left = [_CPU_LEFT * cpu // scale.cpu for cpu in cpu_after]
        self._memory_fits = [
            fragmentation.memory.fitting(max(0, mark - shape.memory)) for mark in fragmentation.memory.marks
        ]
        self._gpu_left = _GPUS_LEFT // (scale.devices * WHOLE)
        # More than all other costs together, so that tiers never share a node while there is a choice; a pod without
        # GPUs does not conflict with either tier.
        step = (scale.devices + 1) * WHOLE * WEIGHT if shape.number else 0
        self.mixing = [factor * step for factor in TIER_MIX_COST[tier]]  # by the tiers on a node

    def __len__(self) -> int:
        return len(self._order) + len(self._heap)

    @property
    def size(self) -> int:
        """The number of classes that it has in memory, at least 1."""
        return 1 + max(len(self._ranks), len(self))

    @property
    def used_at(self) -> int:
        """How many classes had got members when it was used last."""
        return self._filled_before

    def cost(self, node_class: NodeClass) -> Cost | None:
        """Return the cost of a class; None where the devices do not fit."""
        _, cpu, memory, _, tiers = node_class.kind
        states = self._classes.states
        try:
            remainder = self._remainders[node_class.state]
        except KeyError:
            remainder = self._remainders[node_class.state] = states.remainder(node_class.state, self.shape)
        if remainder is None:
            return None
        usefulness = states.usefulness(remainder.state, self._cpu_fits[cpu], self._memory_fits[memory])
        lost = node_class.useful - usefulness
        return Cost(lost, self.mixing[tiers], self._gpu_left * remainder.free, self._cpu_left[cpu])

    def widen(self, cpu: int) -> None:
        """Rank the classes for a pod with this much cpu, too: sizes that are rounded up to this shape differ."""
        floor = self._forecast.cpu.mark(cpu)
        if floor < self._floor:
            self._floor, self._filled_before = floor, -1

    def add_new_classes(self) -> None:
        """Add the classes created since the last call, except those with too little cpu for any pod of this shape."""
        classes = self._classes
        if self._filled_before == classes.filled:
            return
        self._filled_before = classes.filled
        if classes.emptied - self._emptied_before > max(SPARE_RANKS, len(self._order) >> 3):
            self._clean_up()
        new = classes.live & classes.cpu.at_least(self._floor) if self._floor else classes.live
        new ^= new & self._added
        self._added |= new
        while new:
            number = new.bit_length() - 1  # the highest first: finding the lowest of a few costs more
            new ^= 1 << number
            if not self.shape.number:
                heappush(self._heap, self._lower_bound(classes.all[number]) << NUMBER_BITS | number)
                self._in_heap |= 1 << number
            elif (rank := self._rank(number)) is not None:
                insort(self._order, rank << NUMBER_BITS | number)

    def _clean_up(self) -> None:
        """Drop emptied classes: they are new when they fill again. Those in the heap are cleaned up rarely.

        The ranks of some are kept: many classes empty and fill all the time.
        """
        classes, live = self._classes.all, self._classes.live
        self._emptied_before = self._classes.emptied
        self._order = [entry for entry in self._order if classes[entry & NUMBER].members]
        if len(self._heap) > 2 * self._heap_size_before + SPARE_RANKS:
            self._heap = sorted([entry for entry in self._heap if classes[entry & NUMBER].members])
            self._heap_size_before = len(self._heap)
            self._in_heap &= live
        self._added &= live | self._in_heap
        if len(self._ranks) > 2 * len(self) + SPARE_RANKS:
            self._ranks = {number: rank for number, rank in self._ranks.items() if classes[number].members}

    def entries(self) -> Iterable[int]:
        """Return the classes in order."""
        return self._with_heap() if self._heap else self._order

    def _with_heap(self) -> Iterator[int]:
        order, heap, position = self._order, self._heap, 0
        while True:
            while heap and (position == len(order) or heap[0] < order[position]):
                number = heappop(heap) & NUMBER
                self._in_heap ^= 1 << number
                if not self._classes.all[number].members:
                    self._added ^= 1 << number
                elif (rank := self._rank(number)) is not None:
                    insort(order, rank << NUMBER_BITS | number)
            if position == len(order):
                return
            yield order[position]
            position += 1

    def entries_of(self, numbers: set[int]) -> list[int]:
        """Return only these classes, in this order."""
        ranks = ((number, self._rank(number)) for number in numbers if number >= 0)
        return sorted([rank << NUMBER_BITS | number for number, rank in ranks if rank is not None])

    def _lower_bound(self, node_class: NodeClass) -> int:
        """Return a lower bound of a class's rank for a pod without GPUs: such a pod makes no free GPU more useful."""
        kind = node_class.kind
        return self._gpu_left * node_class.free + self._cpu_left[kind.cpu] << 1 | (kind.capacity > 0)

    def _rank(self, number: int) -> int | None:
        node_class = self._classes.all[number]
        if self._remainders.get(node_class.state, _UNKNOWN) is None:
            return None
        rank = self._ranks.get(number)
        if rank is None:
            cost = self.cost(node_class)
            if cost is not None:
                rank = self._ranks[number] = sum(cost) << 1 | (node_class.kind.capacity > 0)
        return rank
