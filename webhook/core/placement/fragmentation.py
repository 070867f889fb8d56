"""How useful free GPUs are to the pods to come: the measure that placing a pod must not lower more than it has to.

The fragmentation gradient of "Beware of Fragmentation" (USENIX ATC '23), turned round. For each shape of the demand mix
a node's free GPUs are useful if the shape fits there by cpu, memory and devices, and only those devices that have room
for its share; weighed by how often each shape comes. What a pod takes away of that is its cost.

A node's cpu and memory matter only through which shapes still fit. So the sizes of the mix are rounded up to a few
steps, and what a node has free down to marks, the sums of two steps: a node between two marks holds the same steps as
one at the lower mark, before and after a pod whose size is a step.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.placement.demand_mix import Weights

WHOLE: Final = 1000
"""GPUs count in thousandths here, rounded down: the measure compares, it does not charge."""

WEIGHT: Final = 1 << 16
"""The weights of all shapes together."""

_CPU_STEPS: Final = 24
_MEMORY_STEPS: Final = 10
_MOST_DEVICES: Final = 16


class State(NamedTuple):
    """The free devices of a node: how many wholly, what others have left (sorted), and the size of one in pieces."""

    whole: int
    partly: tuple[int, ...] = ()
    size: int = 1


class Profile(NamedTuple):
    """What the shapes that fit by cpu and memory find useful."""

    shares: list[int]  # sizes of a share on one device, sorted
    useful: list[int]  # weight of the shapes whose share is at most that, by position
    whole: list[int]  # weight of the shapes that use a whole device where there are so many


class Steps:
    """The sizes of one resource, rounded: `steps` of what is asked, `marks` of what is free."""

    __slots__ = ("marks", "steps")

    def __init__(self, sizes: Iterable[tuple[int, int]], most: int) -> None:
        self.steps = _merged(sizes, most)
        self.marks = sorted({0, *self.steps, *(one + other for one in self.steps for other in self.steps)})

    def step(self, size: int) -> int:
        """Round what is asked up; what is larger than any step stays as it is."""
        index = bisect_left(self.steps, size)
        return self.steps[index] if size and index < len(self.steps) else size

    def fitting(self, free: int) -> int:
        """Count the steps that fit."""
        return bisect_right(self.steps, free)

    def mark(self, free: int) -> int:
        """Round what is free down; tells the position of the mark."""
        return bisect_right(self.marks, free, 1) - 1  # from the second: the first is nothing, and less counts as that


class Fragmentation:
    """The measure for one GPU resource under one demand mix."""

    __slots__ = ("_profiles", "_shapes", "cpu", "memory", "sizes", "total")

    def __init__(self, weights: Weights) -> None:
        total = sum(weights.values())
        self.cpu = Steps(((shape.cpu, weight) for shape, weight in weights.items()), _CPU_STEPS)
        self.memory = Steps(((shape.memory, weight) for shape, weight in weights.items()), _MEMORY_STEPS)
        self._shapes = [
            (shape, self.cpu.fitting(self.rounded(shape).cpu), self.memory.fitting(self.rounded(shape).memory), weight)
            for shape, weight in ((shape, weight * WEIGHT // total) for shape, weight in weights.items())
        ]
        self.sizes: dict[Shape, int] = {}  # the shapes as rounded, and their weights
        for shape, _, _, weight in self._shapes:
            rounded = self.rounded(shape)
            self.sizes[rounded] = self.sizes.get(rounded, 0) + weight
        self.total = sum(weight for *_, weight in self._shapes)  # a little under WEIGHT: each is rounded down
        self._profiles: dict[tuple[int, int, int], Profile] = {}

    def rounded(self, shape: Shape) -> Shape:
        """Round a shape's cpu and memory up to steps."""
        return shape._replace(cpu=self.cpu.step(shape.cpu), memory=self.memory.step(shape.memory))

    def profile(self, size: int, cpu: int, memory: int) -> Profile:
        """Tell what is useful on devices of a size beside so many steps of cpu and of memory."""
        key = (size, cpu, memory)
        known = self._profiles.get(key)
        if known is None:
            fitting = [
                (shape, weight) for shape, cpus, sizes, weight in self._shapes if cpus <= cpu and sizes <= memory
            ]
            known = self._profiles[key] = _profile(fitting, size)
        return known


def useful(state: State, profile: Profile) -> int:
    """Weigh free devices, in thousandths of a GPU times WEIGHT."""
    whole = state.whole
    total = whole * WHOLE * profile.whole[whole if whole < _MOST_DEVICES else _MOST_DEVICES]
    for left in state.partly:
        total += left * profile.useful[bisect_right(profile.shares, left)]
    return total


def share_of(shape: Shape, size: int) -> int:
    """Tell how many thousandths of a device of a size in pieces a shape takes; above 1000 it never fits.

    Rounded down as what is free is, so that what fits in pieces fits here.
    """
    return shape.amount * WHOLE // (shape.parts or size)


def after(state: State, shape: Shape) -> State | None:
    """Take a shape's devices off, the fullest that fit first; None where they do not fit."""
    share, number = share_of(shape, state.size), shape.number
    if not number:
        return state
    if share == WHOLE:
        return state._replace(whole=state.whole - number) if number <= state.whole else None
    partly = state.partly
    start = bisect_left(partly, share)
    fullest = partly[start : start + number]
    fresh = number - len(fullest)
    if fresh > state.whole or share > WHOLE:
        return None
    left = [*partly[:start], *partly[start + number :], *[WHOLE - share] * fresh]
    left.extend([each - share for each in fullest if each > share])
    left.sort()
    return State(state.whole - fresh, tuple(left), state.size)


def _profile(fitting: list[tuple[Shape, int]], size: int) -> Profile:
    single: dict[int, int] = {}
    several = [0] * (_MOST_DEVICES + 1)
    for shape, weight in fitting:
        share = share_of(shape, size)
        if share <= WHOLE and shape.number == 1:
            single[share] = single.get(share, 0) + weight
        elif share <= WHOLE:
            several[min(shape.number, _MOST_DEVICES)] += weight
    shares = sorted(single)
    by_share = list(accumulate((single[share] for share in shares), initial=0))
    return Profile(shares, by_share, [by_share[-1] + weight for weight in accumulate(several)])


def _merged(sizes: Iterable[tuple[int, int]], most: int) -> list[int]:
    """Merge neighbours, each time those whose rounding up costs least, until there are few enough."""
    weights: dict[int, int] = {}
    for size, weight in sizes:
        if size:
            weights[size] = weights.get(size, 0) + weight
    left = sorted(weights.items())
    while len(left) > most:
        _, index = min((left[i][1] * (left[i + 1][0] - left[i][0]), i) for i in range(len(left) - 1))
        (_, lighter), (size, weight) = left[index : index + 2]
        left[index : index + 2] = [(size, weight + lighter)]
    return [size for size, _ in left]
