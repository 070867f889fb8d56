"""Pod sizes that only a few nodes can ever hold, and how many of those nodes are reserved for them.

In the demand mix such sizes are too rare to have weight: a node with twice the cores of the others would be filled by
pods that fit anywhere. So while few of the nodes for a scarce size are left, other pods take these nodes last.
"""

from collections import Counter
from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.placement.fragmentation import WEIGHT, DeviceState, Fragmentation, after

_SCARCE_FRACTION: Final = 4
"""A size is scarce if at most one in this many nodes could hold it when empty."""

_MAX_GROUPS: Final = 8

_MARGIN: Final = 4
"""Nodes reserved per average number of running pods of the size, up to three quarters of the capable nodes.

Occupied nodes rarely become empty again, and such pods come in bursts. Measured on openb's list multigpu20 with tasks
that come and go: of 567 tasks of 8 GPUs 567 find a node with four, 565 with three, 559 with two and half of the nodes,
528 with nothing reserved.
"""


class NodeRoom(NamedTuple):
    """The room of a node, free or in total: devices, and the numbers of steps of cpu and of memory that fit."""

    devices: DeviceState
    cpu: int
    memory: int


class Group(NamedTuple):
    """Scarce sizes that the same nodes can hold: the largest of each way to request devices, and their weight."""

    shapes: tuple[Shape, ...]
    cpu: int
    memory: int
    weight: int
    nodes: frozenset[NodeRoom]
    capable: int

    def reserved_nodes(self, pods: int) -> int:
        """Return how many nodes are reserved while this many pods run."""
        return min(self.capable * 3 // 4, _MARGIN * self.weight * pods // WEIGHT + 1)

    def fits(self, room: NodeRoom) -> bool:
        """Whether the largest of these sizes fits."""
        return (
            self.cpu <= room.cpu
            and self.memory <= room.memory
            and all(after(room.devices, shape) is not None for shape in self.shapes)
        )


class Scarcity:
    """The groups of scarce sizes of one GPU resource; sets of them are bitmaps."""

    __slots__ = ("_forecast", "_nodes", "groups")

    def __init__(self, fragmentation: Fragmentation, nodes: Counter[NodeRoom]) -> None:
        self._forecast, self._nodes = fragmentation, nodes
        found: dict[frozenset[NodeRoom], list[tuple[Shape, int]]] = {}
        for shape, weight in fragmentation.sizes.items():
            if shape.number:
                found.setdefault(self._capable(shape), []).append((shape, weight))
        groups = [self._group(capable, sizes) for capable, sizes in found.items() if self._is_scarce(capable)]
        self.groups = tuple(sorted(groups, key=lambda group: -group.weight)[:_MAX_GROUPS])

    def fitting(self, room: NodeRoom) -> int:
        """Return the groups that fit."""
        return sum(group.fits(room) << number for number, group in enumerate(self.groups))

    def entitled(self, shape: Shape) -> int:
        """Return the groups whose nodes are open to a size, since it has no better choice itself."""
        capable = self._capable(shape) if self.groups else frozenset()
        return sum((capable <= group.nodes) << number for number, group in enumerate(self.groups))

    def _capable(self, shape: Shape) -> frozenset[NodeRoom]:
        cpu, memory = self._forecast.cpu.fitting(shape.cpu), self._forecast.memory.fitting(shape.memory)
        return frozenset(
            room
            for room in self._nodes
            if cpu <= room.cpu and memory <= room.memory and after(room.devices, shape) is not None
        )

    def _is_scarce(self, capable: frozenset[NodeRoom]) -> bool:
        return 0 < _SCARCE_FRACTION * sum(self._nodes[room] for room in capable) <= self._nodes.total()

    def _group(self, capable: frozenset[NodeRoom], sizes: list[tuple[Shape, int]]) -> Group:
        return Group(
            tuple({shape._replace(cpu=0, memory=0): None for shape, _ in sizes}),
            max(self._forecast.cpu.fitting(shape.cpu) for shape, _ in sizes),
            max(self._forecast.memory.fitting(shape.memory) for shape, _ in sizes),
            sum(weight for _, weight in sizes),
            capable,
            sum(self._nodes[room] for room in capable),
        )
