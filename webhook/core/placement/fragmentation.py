"""How useful free GPUs are for future pods: placing a pod should reduce this measure as little as possible.

This is the fragmentation gradient of "Beware of Fragmentation" (USENIX ATC '23), inverted. For each shape of the demand
mix, a node's free GPUs are useful if the shape fits there by cpu, memory and devices, and of the devices only those
with room for its share; each shape counts by its frequency. The cost of a pod is how much of this it takes.

A node's cpu and memory matter only by which shapes still fit. So the sizes in the mix are rounded up to a few steps,
and free amounts down to marks, the sums of two steps: a node between two marks fits the same steps as one at the lower
mark, before and after a pod whose size is a step.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.placement.demand_mix import Weights

WHOLE: Final = 1000
"""One GPU is 1,000 here, rounded down: the measure is compared, not charged."""

WEIGHT: Final = 1 << 16
"""The sum of the weights of all shapes."""

_CPU_STEPS: Final = 24
_MEMORY_STEPS: Final = 10
_MOST_DEVICES: Final = 16


class DeviceState(NamedTuple):
    """The free devices of a node: wholly free ones, the rest of the others (sorted), and the pieces of one device."""

    whole: int
    partly: tuple[int, ...] = ()
    size: int = 1


class Profile(NamedTuple):
    """How useful devices are for the shapes that fit by cpu and memory."""

    shares: list[int]  # sizes of a share on one device, sorted
    useful: list[int]  # weight of the shapes with at most that share, by position
    whole: list[int]  # weight of the shapes that use a whole device, by number of devices


class Steps:
    """The sizes of one resource, rounded: `steps` of requested amounts, `marks` of free amounts."""

    __slots__ = ("marks", "steps")

    def __init__(self, sizes: Iterable[tuple[int, int]], most: int) -> None:
        self.steps = _merged(sizes, most)
        self.marks = sorted({0, *self.steps, *(one + other for one in self.steps for other in self.steps)})

    def step(self, size: int) -> int:
        """Round a requested amount up; an amount above every step stays as it is."""
        index = bisect_left(self.steps, size)
        return self.steps[index] if size and index < len(self.steps) else size

    def fitting(self, free: int) -> int:
        """Return how many steps fit."""
        return bisect_right(self.steps, free)

    def mark(self, free: int) -> int:
        """Round a free amount down; return the position of the mark."""
        return bisect_right(self.marks, free, 1) - 1  # from the second: the first is 0, and less counts as 0


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
        self.sizes: dict[Shape, int] = {}  # the rounded shapes, and their weights
        for shape, _, _, weight in self._shapes:
            rounded = self.rounded(shape)
            self.sizes[rounded] = self.sizes.get(rounded, 0) + weight
        self.total = sum(weight for *_, weight in self._shapes)  # a little below WEIGHT: each weight is rounded down
        self._profiles: dict[tuple[int, int, int], Profile] = {}

    def rounded(self, shape: Shape) -> Shape:
        """Round a shape's cpu and memory up to steps."""
        return shape._replace(cpu=self.cpu.step(shape.cpu), memory=self.memory.step(shape.memory))

    def profile(self, size: int, cpu: int, memory: int) -> Profile:
        """Return the profile of devices of a size beside these numbers of steps of cpu and of memory."""
        key = (size, cpu, memory)
        known = self._profiles.get(key)
        if known is None:
            fitting = [
                (shape, weight) for shape, cpus, sizes, weight in self._shapes if cpus <= cpu and sizes <= memory
            ]
            known = self._profiles[key] = _profile(fitting, size)
        return known


def useful(state: DeviceState, profile: Profile) -> int:
    """Return how useful free devices are, in thousandths of a GPU times WEIGHT."""
    whole = state.whole
    total = whole * WHOLE * profile.whole[whole if whole < _MOST_DEVICES else _MOST_DEVICES]
    for left in state.partly:
        total += left * profile.useful[bisect_right(profile.shares, left)]
    return total


def share_of(shape: Shape, size: int) -> int:
    """Return the thousandths of a device with `size` pieces that a shape takes; above 1000 it never fits.

    Rounded down like free amounts, so that a shape that fits in pieces fits here.
    """
    return shape.amount * WHOLE // (shape.parts or size)


def after(state: DeviceState, shape: Shape) -> DeviceState | None:
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
    return DeviceState(state.whole - fresh, tuple(left), state.size)


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
    """Merge neighbors, each time the pair whose rounding up costs least, until there are few enough."""
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
