"""Sizes of pods that only a few nodes can ever hold, and how many of those nodes are kept for them.

In the mix such sizes are too rare to weigh anything: a node with twice the cores of the others would be filled by pods
that fit anywhere. So while few of the nodes that can hold a scarce size are left, other pods take these last.
"""

from collections import Counter
from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.placement.fragmentation import WEIGHT, Fragmentation, State, after

_SCARCE: Final = 4
"""A size is scarce if at most one node in so many could hold it when empty."""

_MOST_GROUPS: Final = 8

_MARGIN: Final = 4
"""So many times as many nodes are kept as pods of the size run on average, up to three quarters of those there are.

Nodes that are given away hardly ever empty again, and such pods come in swarms. Measured on openb's list multigpu20
with tasks that come and go: of 567 tasks of 8 GPUs 567 find a node with four, 565 with three, 559 with two and half of
the nodes, 528 with nothing kept.
"""


class Able(NamedTuple):
    """What a node has, free or in all: devices, and how many steps of cpu and of memory fit."""

    devices: State
    cpu: int
    memory: int


class Group(NamedTuple):
    """Scarce sizes that the same nodes can hold: the hardest of each way to ask for devices, and their weight."""

    shapes: tuple[Shape, ...]
    cpu: int
    memory: int
    weight: int
    nodes: frozenset[Able]
    capable: int

    def kept(self, pods: int) -> int:
        """Tell how many nodes are kept where so many pods run."""
        return min(self.capable * 3 // 4, _MARGIN * self.weight * pods // WEIGHT + 1)

    def fits(self, able: Able) -> bool:
        """Tell whether the hardest of these sizes fits."""
        return (
            self.cpu <= able.cpu
            and self.memory <= able.memory
            and all(after(able.devices, shape) is not None for shape in self.shapes)
        )


class Scarcity:
    """The groups of scarce sizes of one GPU resource; sets of them are bitmaps."""

    __slots__ = ("_forecast", "_nodes", "groups")

    def __init__(self, fragmentation: Fragmentation, nodes: Counter[Able]) -> None:
        self._forecast, self._nodes = fragmentation, nodes
        found: dict[frozenset[Able], list[tuple[Shape, int]]] = {}
        for shape, weight in fragmentation.sizes.items():
            if shape.number:
                found.setdefault(self._capable(shape), []).append((shape, weight))
        groups = [self._group(capable, sizes) for capable, sizes in found.items() if self._is_scarce(capable)]
        self.groups = tuple(sorted(groups, key=lambda group: -group.weight)[:_MOST_GROUPS])

    def fitting(self, able: Able) -> int:
        """Tell which groups fit."""
        return sum(group.fits(able) << number for number, group in enumerate(self.groups))

    def entitled(self, shape: Shape) -> int:
        """Tell the groups for whose nodes a size has no better choice itself."""
        capable = self._capable(shape) if self.groups else frozenset()
        return sum((capable <= group.nodes) << number for number, group in enumerate(self.groups))

    def _capable(self, shape: Shape) -> frozenset[Able]:
        cpu, memory = self._forecast.cpu.fitting(shape.cpu), self._forecast.memory.fitting(shape.memory)
        return frozenset(
            able
            for able in self._nodes
            if cpu <= able.cpu and memory <= able.memory and after(able.devices, shape) is not None
        )

    def _is_scarce(self, capable: frozenset[Able]) -> bool:
        return 0 < _SCARCE * sum(self._nodes[able] for able in capable) <= self._nodes.total()

    def _group(self, capable: frozenset[Able], sizes: list[tuple[Shape, int]]) -> Group:
        return Group(
            tuple({shape._replace(cpu=0, memory=0): None for shape, _ in sizes}),
            max(self._forecast.cpu.fitting(shape.cpu) for shape, _ in sizes),
            max(self._forecast.memory.fitting(shape.memory) for shape, _ in sizes),
            sum(weight for _, weight in sizes),
            capable,
            sum(self._nodes[able] for able in capable),
        )
