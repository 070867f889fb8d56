"""Nodes grouped by the values of some labels, kept up to date: which group each slot is in, without reading labels."""

from collections.abc import Iterable, Sequence
from typing import Final

from webhook.core.model.node import Node

Path = tuple[str | None, ...]
"""The values of the labels by which a group is known; the first is never None."""

NO_GROUP: Final = -1
_SPARE: Final = 64


class NodeGroups:
    """The groups by `keys`; nodes without the first label are in none. Valid up to a position in a log of changes."""

    __slots__ = ("_keys", "_numbers", "bits", "ids", "paths", "position")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._numbers: dict[Path, int] = {}
        self.paths: list[Path] = []  # by group; some may be empty
        self.ids: list[int] = []  # the group by slot
        self.bits = 0  # the slots that are in a group
        self.position = 0

    @property
    def is_worn(self) -> bool:
        """Whether most groups are empty: nodes were labelled again and again."""
        return len(self.paths) > 2 * len(self.ids) + _SPARE

    def update(self, slots: Iterable[int], nodes: Sequence[Node | None]) -> None:
        """Read the labels of the nodes in these slots."""
        self.ids += [NO_GROUP] * (len(nodes) - len(self.ids))
        first, *others = self._keys
        for slot in slots:
            node = nodes[slot]
            value = None if node is None else node.labels.get(first)
            if node is None or value is None:
                self.ids[slot] = NO_GROUP
                self.bits &= ~(1 << slot)
                continue
            path = (value, *[node.labels.get(key) for key in others])
            number = self._numbers.get(path)
            if number is None:
                number = self._numbers[path] = len(self.paths)
                self.paths.append(path)
            self.ids[slot] = number
            self.bits |= 1 << slot
