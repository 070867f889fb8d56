"""The largest holders of a sum: of a team's GPUs, of one user's, of one model's.

Sums are updated by events. The order is kept from the first query on, as a heap whose outdated items are dropped when
they reach the top: repeated refusals do not scan all holders.
"""

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import User

_SLACK: Final = 64
"""Outdated items that a heap may have besides one for each holder."""


class Holder(NamedTuple):
    """A controller, or a bare pod, that holds GPUs.

    `user` is None where no user is known. `since`, in seconds of Unix time, is when the first of its pods was created,
    0 where that is not known. `is_waiting`: none of its pods is on a node yet. `is_leaving`: all of them are deleted.
    """

    name: str
    gpus: Units
    user: User | None = None
    since: int = 0
    is_waiting: bool = False
    is_leaving: bool = False


class Holders:
    """GPU units by holder, with their total."""

    __slots__ = ("_heap", "_sums", "total")

    def __init__(self) -> None:
        self.total: Units = 0
        self._sums: dict[str, Units] = {}
        self._heap: list[tuple[Units, str]] | None = None  # from the first query on

    def __len__(self) -> int:
        return len(self._sums)

    def of(self, name: str) -> Units:
        """Return the units of one holder."""
        return self._sums.get(name, 0)

    def change(self, name: str, gpus: Units) -> None:
        """Add units to a holder, or subtract them."""
        self.total += gpus
        left = self._sums.get(name, 0) + gpus
        if not left:
            self._sums.pop(name, None)
            return
        self._sums[name] = left
        heap = self._heap
        if heap is not None:
            if len(heap) > 2 * len(self._sums) + _SLACK:
                self._heap = None
            else:
                heappush(heap, (-left, name))

    def largest(self, count: int) -> list[tuple[str, Units]]:
        """Return the largest holders, the largest first, ties by name."""
        heap = self._heap
        if heap is None:
            heap = self._heap = [(-gpus, name) for name, gpus in self._sums.items()]
            heapify(heap)
        found: dict[str, tuple[Units, str]] = {}
        while heap and len(found) < count:
            item = heappop(heap)
            if self._sums.get(item[1]) == -item[0]:
                found[item[1]] = item
        for item in found.values():
            heappush(heap, item)
        return [(name, -negative) for name, (negative, _) in found.items()]


class HolderDetails:
    """Details of one holder besides its sums."""

    __slots__ = ("gpus", "leaving", "pods", "since", "user", "waiting")

    def __init__(self) -> None:
        self.pods = 0
        self.gpus: Units = 0
        self.waiting: Units = 0
        self.leaving: Units = 0
        self.since = 0
        self.user: User | None = None
