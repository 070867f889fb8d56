"""What each class of nodes costs a shape of pod, and the classes in that order."""

from bisect import insort
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.model.tier import Tier
from webhook.core.placement.device_states import Left
from webhook.core.placement.fragmentation import WEIGHT, WHOLE, Fragmentation
from webhook.core.placement.node_classes import NodeClass, NodeClasses
from webhook.core.placement.tier_mix import TIER_MIX_COST

NUMBER_BITS: Final = 20
"""An entry is `rank << NUMBER_BITS | number of the class`; the rank is twice the cost, and one more for whole nodes."""

NUMBER: Final = (1 << NUMBER_BITS) - 1
_EMPTIED: Final = 64
"""So many classes may have emptied before an order is rid of them: meeting one costs little, a pass over all more."""

_NOT_KNOWN: Final = Left(0, 0)

_GPUS_LEFT: Final = 20 * WEIGHT
_CPU_LEFT: Final = 50 * WEIGHT
"""What the largest node left wholly free after the pod would cost: 0.02 of a GPU for its GPUs, 0.05 for its cpu.

Measured on the openb trace beside the fragmentation gradient: 95.50 % allocated; 95.40 with 0.035 for both, 95.31 with
0.07 for the GPUs, 95.01 with nothing for them. Without any, ties open fresh nodes.
"""


class Scale(NamedTuple):
    """The largest node: what is left over on others counts in proportion, and nothing else costs as much as it."""

    devices: int
    cpu: int

    def covers(self, other: "Scale") -> bool:
        """Tell whether another node is no larger."""
        return other.devices <= self.devices and other.cpu <= self.cpu


class Cost(NamedTuple):
    """What a class of nodes costs a pod, in thousandths of a GPU times WEIGHT: the lowest sum wins."""

    useless: int  # taken from the pods to come, by themselves or for want of cpu, memory or room on one device
    mixing: int  # for sharing a node with the other tier
    gpus_left: int
    cpu_left: int


class Ranking:
    """The classes in the order in which one shape should take them; some of them may be empty.

    A pod without GPUs fits on most classes, and the least that one can cost it is told faster than what it costs: there
    classes wait until it may be their turn.
    """

    __slots__ = (
        "_classes",
        "_cpu_fits",
        "_cpu_left",
        "_floor",
        "_forecast",
        "_gpu_left",
        "_lefts",
        "_memory_fits",
        "_met",
        "_order",
        "_ranks",
        "_seen",
        "_swept",
        "_waited",
        "_waiting",
        "_waits",
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
        self.entitled = entitled  # groups of scarce sizes whose nodes are not kept from this shape
        self._forecast, self._classes = fragmentation, classes
        self._floor = len(
            fragmentation.cpu.marks
        )  # the lowest mark of cpu that a pod of this size has asked for so far
        self._order: list[int] = []  # entries, as above
        self._waiting: list[int] = []  # a heap of entries, each with the least that its rank can be
        self._met = 0  # numbers of the classes in either, or where the devices do not fit, as a bitmap
        self._ranks: dict[int, int] = {}  # by number of the class
        self._seen = 0  # times that a class had come up when they were last taken in
        self._swept = 0  # classes that had emptied when the order was last rid of them
        self._waited = 0  # how many were left waiting when they were last rid of empty ones
        self._waits = 0  # numbers of the classes that wait, as a bitmap
        self._lefts = classes.states.lefts(shape)
        left = [max(0, mark - shape.cpu) for mark in fragmentation.cpu.marks]
        self._cpu_fits = [fragmentation.cpu.fitting(cpu) for cpu in left]
        self._cpu_left = [_CPU_LEFT * cpu // scale.cpu for cpu in left]
        self._memory_fits = [
            fragmentation.memory.fitting(max(0, mark - shape.memory)) for mark in fragmentation.memory.marks
        ]
        self._gpu_left = _GPUS_LEFT // (scale.devices * WHOLE)
        # More than all else together, so that tiers never share a node while there is a choice; nobody without GPUs is
        # in the way of anybody.
        step = (scale.devices + 1) * WHOLE * WEIGHT if shape.number else 0
        self.mixing = [strange * step for strange in TIER_MIX_COST[tier]]  # by the tiers on a node

    def __len__(self) -> int:
        return len(self._order) + len(self._waiting)

    def cost(self, node_class: NodeClass) -> Cost | None:
        """Tell what a class costs; None where the devices do not fit."""
        _, cpu, memory, _, tiers = node_class.kind
        states = self._classes.states
        try:
            left = self._lefts[node_class.state]
        except KeyError:
            left = self._lefts[node_class.state] = states.left(node_class.state, self.shape)
        if left is None:
            return None
        worth = states.worth(left.state, self._cpu_fits[cpu], self._memory_fits[memory])
        return Cost(node_class.useful - worth, self.mixing[tiers], self._gpu_left * left.free, self._cpu_left[cpu])

    def widen(self, cpu: int) -> None:
        """Rank the classes for a pod with so much cpu, too: sizes that are rounded up to this shape differ."""
        floor = self._forecast.cpu.mark(cpu)
        if floor < self._floor:
            self._floor, self._seen = floor, -1

    def take_in(self) -> None:
        """List the classes that came up, or let them wait, but those where no such pod fits for want of cpu."""
        classes = self._classes
        if self._seen == classes.came_up:
            return
        self._seen = classes.came_up
        if classes.emptied - self._swept > max(_EMPTIED, len(self._order) >> 3):
            self._sweep()
        fresh = classes.live & classes.cpu.at_least(self._floor) if self._floor else classes.live
        fresh ^= fresh & self._met
        self._met |= fresh
        while fresh:
            number = fresh.bit_length() - 1  # the highest first: to find the lowest of a few costs more
            fresh ^= 1 << number
            if not self.shape.number:
                heappush(self._waiting, self._least(classes.all[number]) << NUMBER_BITS | number)
                self._waits |= 1 << number
            elif (rank := self._rank(number)) is not None:
                insort(self._order, rank << NUMBER_BITS | number)

    def _sweep(self) -> None:
        """Forget classes that emptied: they are new when they come up again. Those that wait are looked at rarely."""
        classes, live = self._classes.all, self._classes.live
        self._swept = self._classes.emptied
        self._order = [entry for entry in self._order if classes[entry & NUMBER].members]
        if len(self._waiting) > 2 * self._waited + _EMPTIED:
            self._waiting = sorted([entry for entry in self._waiting if classes[entry & NUMBER].members])
            self._waited = len(self._waiting)
            self._waits &= live
        self._met &= live | self._waits

    def entries(self) -> Iterable[int]:
        """List the classes in order."""
        return self._with_waiting() if self._waiting else self._order

    def _with_waiting(self) -> Iterator[int]:
        order, waiting, position = self._order, self._waiting, 0
        while True:
            while waiting and (position == len(order) or waiting[0] < order[position]):
                number = heappop(waiting) & NUMBER
                self._waits ^= 1 << number
                if not self._classes.all[number].members:
                    self._met ^= 1 << number
                elif (rank := self._rank(number)) is not None:
                    insort(order, rank << NUMBER_BITS | number)
            if position == len(order):
                return
            yield order[position]
            position += 1

    def entries_of(self, numbers: set[int]) -> list[int]:
        """List only these classes, in this order."""
        ranks = ((number, self._rank(number)) for number in numbers if number >= 0)
        return sorted([rank << NUMBER_BITS | number for number, rank in ranks if rank is not None])

    def _least(self, node_class: NodeClass) -> int:
        """Tell the least that the rank of a class can be for a pod without GPUs: it makes none more useful."""
        kind = node_class.kind
        return self._gpu_left * node_class.free + self._cpu_left[kind.cpu] << 1 | (kind.capacity > 0)

    def _rank(self, number: int) -> int | None:
        node_class = self._classes.all[number]
        if self._lefts.get(node_class.state, _NOT_KNOWN) is None:
            return None
        rank = self._ranks.get(number)
        if rank is None:
            cost = self.cost(node_class)
            if cost is not None:
                rank = self._ranks[number] = sum(cost) << 1 | (node_class.kind.capacity > 0)
        return rank
