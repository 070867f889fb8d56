"""The line as all viewers share it: computed on a snapshot, at most every few seconds, however many look."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.core.explain.queue_rows import QueueRow, written_reason
from webhook.core.world.waiting_pods import WaitingPod
from webhook.page.live.cluster_state import ClusterState
from webhook.page.views.waiting_row import WaitingReport, short, waiting_report
from webhook.simulation.forecast.forecast import read_line
from webhook.snapshots import SnapshotError, Snapshots

SECONDS: Final = 4.0
"""How long a line is shown before it is computed again."""

REST: Final = 4
"""A line, or the failure to compute it, is shown for at least so many times as long as that took."""

FIRST: Final = 1_000
OF_NAMESPACE: Final = 100
"""Pods that are shown: the first of all, and the first of each namespace."""


class LineRow(msgspec.Struct, frozen=True):
    """A waiting pod, and what Fairgate wrote on it, for those who may not see what it waits for."""

    pod: WaitingReport
    written: str


class Line(msgspec.Struct, frozen=True):
    """The line: how many wait in all, how many in each namespace, and the rows that are shown."""

    waiting: int
    by_namespace: dict[str, int]
    rows: tuple[LineRow, ...]


class SharedLine:
    """The line of a cluster. Requests that come at the same time share one computation."""

    def __init__(self, state: ClusterState, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        self._lock = asyncio.Lock()
        self._line: Line | SnapshotError = Line(0, {}, ())
        self._until = -1.0

    async def line(self) -> Line:
        """Return the present line. Raises SnapshotError."""
        async with self._lock:
            start = asyncio.get_running_loop().time()
            if start >= self._until:
                self._line = await self._read()
                end = asyncio.get_running_loop().time()
                self._until = end + max(SECONDS, REST * (end - start))
            if isinstance(self._line, SnapshotError):
                raise self._line
            return self._line

    async def _read(self) -> Line | SnapshotError:
        if not len(self._state.world.waiting):
            return Line(0, {}, ())
        try:
            return msgspec.msgpack.decode(await self._snapshots.run(self._compute), type=Line)
        except SnapshotError as error:
            return error

    def _compute(self) -> bytes:
        return msgspec.msgpack.encode(line_of(self._state, now=int(time.time())))


def line_of(state: ClusterState, *, now: int) -> Line:
    """Return the line of a state, which must not change meanwhile."""
    reading = state.reading
    past, is_known = state.past(now), reading.is_room_known
    reader = read_line(reading.world, past, now=now, clock=time.process_time, is_room_known=is_known)
    found = reader.in_order()
    counts = Counter(str(waiting.pod.namespace) for waiting in found)
    return Line(len(found), dict(counts), tuple(_row(reader.row(waiting)) for waiting in _shown(found)))


def _shown(found: list[WaitingPod]) -> Iterator[WaitingPod]:
    taken: Counter[str] = Counter()
    for number, waiting in enumerate(found):
        namespace = waiting.pod.namespace
        taken[namespace] += 1
        if number < FIRST or taken[namespace] <= OF_NAMESPACE:
            yield waiting


def _row(row: QueueRow) -> LineRow:
    found = msgspec.structs.replace(waiting_report(row), facts={}, cause=short(row.cause))
    return LineRow(found, short(written_reason(row.waiting).text))
