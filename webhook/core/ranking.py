"""What each class of nodes costs a shape of pod, and the classes in that order."""

from bisect import insort
from typing import Final, NamedTuple

from webhook.core.classes import Classes, NodeClass
from webhook.core.company import STRANGENESS
from webhook.core.forecast import WEIGHT, WHOLE, Forecast, State, after, useful
from webhook.core.mix import Shape
from webhook.core.tier import Tier

NUMBER_BITS: Final = 20
"""An entry is `rank << NUMBER_BITS | number of the class`; the rank is twice the cost, and one more for whole nodes."""

NUMBER: Final = (1 << NUMBER_BITS) - 1
_EMPTIED: Final = 64
"""So many classes may have emptied before an order is rid of them: meeting one costs little, a pass over all more."""

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
    """The classes in the order in which one shape should take them; some of them may be empty."""

    __slots__ = (
        "_afters",
        "_cpu_fits",
        "_cpu_left",
        "_forecast",
        "_gpu_left",
        "_listed",
        "_memory_fits",
        "_ranks",
        "_swept",
        "entitled",
        "mixing",
        "order",
        "seen",
        "shape",
    )

    def __init__(self, shape: Shape, tier: Tier, forecast: Forecast, scale: Scale, entitled: int = 0) -> None:
        self.shape = shape
        self.entitled = entitled  # groups of scarce sizes whose nodes are not kept from this shape
        self.order: list[int] = []  # entries, as above
        self._forecast = forecast
        self.seen = 0  # position in the log of classes that came up, as far as it was taken in
        self._swept = 0  # classes that had emptied when the order was last rid of them
        self._ranks: dict[int, int | None] = {}  # by number of the class; None: never fits
        self._listed: set[int] = set()
        self._afters: dict[State, State | None] = {}
        left = [max(0, mark - shape.cpu) for mark in forecast.cpu.marks]
        self._cpu_fits = [forecast.cpu.fitting(cpu) for cpu in left]
        self._cpu_left = [_CPU_LEFT * cpu // scale.cpu for cpu in left]
        self._memory_fits = [forecast.memory.fitting(max(0, mark - shape.memory)) for mark in forecast.memory.marks]
        self._gpu_left = _GPUS_LEFT // (scale.devices * WHOLE)
        # More than all else together, so that tiers never share a node while there is a choice; nobody without GPUs is
        # in the way of anybody.
        step = (scale.devices + 1) * WHOLE * WEIGHT if shape.number else 0
        self.mixing = [strange * step for strange in STRANGENESS[tier]]  # by the tiers on a node

    def cost(self, node_class: NodeClass) -> Cost | None:
        """Tell what a class costs; None where the devices do not fit."""
        devices, cpu, memory, _, tiers = node_class.kind
        try:
            left = self._afters[devices]
        except KeyError:
            left = self._afters[devices] = after(devices, self.shape)
        if left is None:
            return None
        profile = self._forecast.profile(left.size, self._cpu_fits[cpu], self._memory_fits[memory])
        gpus_left = self._gpu_left * (left.whole * WHOLE + sum(left.partly))
        return Cost(node_class.useful - useful(left, profile), self.mixing[tiers], gpus_left, self._cpu_left[cpu])

    def take_in(self, classes: Classes) -> None:
        """Bring the order up to date with the classes that came up, and now and then with those that emptied."""
        members, log, order = classes.all, classes.log, self.order
        if classes.emptied - self._swept > max(_EMPTIED, len(order) >> 3):
            self._swept = classes.emptied
            order[:] = [entry for entry in order if members[entry & NUMBER].members]
            self._listed = {entry & NUMBER for entry in order}
        ranks, listed = self._ranks, self._listed
        for number in log[self.seen :]:
            if number in listed or not members[number].members:
                continue
            if number not in ranks:
                cost = self.cost(members[number])
                ranks[number] = None if cost is None else sum(cost) << 1 | (members[number].kind.capacity > 0)
            rank = ranks[number]
            if rank is not None:
                listed.add(number)
                insort(order, rank << NUMBER_BITS | number)
        self.seen = len(log)

    def entries(self, numbers: set[int]) -> list[int]:
        """List only these classes, in this order."""
        ranks = ((number, self._ranks.get(number)) for number in numbers)
        return sorted([rank << NUMBER_BITS | number for number, rank in ranks if rank is not None])
