"""The line as all viewers share it: computed on a snapshot, at most every few seconds, however many look.

Likely starts take longest. Where they take more than a moment, the line is shown without them, and again once they are
there.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.core.explain.likely_start import UnknownStart
from webhook.core.explain.queue_rows import QueueReader, QueueRow, written_reason
from webhook.core.model.names import Uid
from webhook.core.world.waiting_pods import WaitingPod
from webhook.page.live.cluster_state import ClusterState
from webhook.page.views.waiting_row import StartReport, WaitingReport, short, waiting_report
from webhook.simulation.forecast.forecast import read_line
from webhook.snapshots import SnapshotError, Snapshots, TooLongError

SECONDS: Final = 4.0
"""How long a line is shown before it is computed again."""

PATIENCE_SECONDS: Final = 0.7
"""For how long a line waits for its likely starts."""

COMPUTED: Final = "it is being computed"
"""Why a likely start is not known yet."""

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
        self._computing: asyncio.Task[Line | SnapshotError] | None = None
        self._began = 0.0

    async def line(self) -> Line:
        """Return the present line, its likely starts those of before where they are still computed.

        Raises SnapshotError.
        """
        async with self._lock:
            if asyncio.get_running_loop().time() >= self._until:
                await self._refresh()
            if isinstance(self._line, SnapshotError):
                raise self._line
            return self._line

    async def close(self) -> None:
        """End what is being computed."""
        if self._computing is not None:
            self._computing.cancel()
            await asyncio.gather(self._computing, return_exceptions=True)

    async def _refresh(self) -> None:
        if not len(self._state.world.waiting):
            self._line = Line(0, {}, ())
            return
        if self._computing is None:  # else an earlier request began it, and is gone
            self._began = asyncio.get_running_loop().time()
            self._computing = asyncio.create_task(self._read(has_starts=True))
        await asyncio.wait([self._computing], timeout=PATIENCE_SECONDS)
        if not self._computing.done():
            self._line = _with_starts_of(self._line, await self._read(has_starts=False))
            self._until = math.inf
            self._computing.add_done_callback(self._show)
        else:
            self._keep(self._computing.result())

    def _show(self, computed: asyncio.Task[Line | SnapshotError]) -> None:
        """Have open pages fetch the line with its likely starts."""
        if not computed.cancelled():
            self._keep(computed.result())
            self._state.touch()

    def _keep(self, found: Line | SnapshotError) -> None:
        if isinstance(found, TooLongError) and isinstance(self._line, Line) and self._line.rows:
            found = _without_starts(self._line, str(found))
        now = asyncio.get_running_loop().time()
        self._line, self._computing = found, None
        self._until = now + max(SECONDS, REST * (now - self._began))

    async def _read(self, *, has_starts: bool) -> Line | SnapshotError:
        def compute() -> bytes:
            return msgspec.msgpack.encode(line_of(self._state, now=int(time.time()), has_starts=has_starts))

        try:
            return msgspec.msgpack.decode(await self._snapshots.run(compute), type=Line)
        except SnapshotError as error:
            return error


def _with_starts_of(before: Line | SnapshotError, found: Line | SnapshotError) -> Line | SnapshotError:
    """Return a line with the likely starts that are known from before."""
    if isinstance(before, SnapshotError) or isinstance(found, SnapshotError):
        return found
    known = {(row.pod.namespace, row.pod.name): row.pod for row in before.rows}
    rows = (_start_of(known.get((row.pod.namespace, row.pod.name)), row) for row in found.rows)
    return msgspec.structs.replace(found, rows=tuple(rows))


def _start_of(before: WaitingReport | None, row: LineRow) -> LineRow:
    if before is None or row.pod.likely_start_unknown != COMPUTED:
        return row
    return _started(row, before.likely_start, before.likely_start_unknown)


def _without_starts(line: Line, why: str) -> Line:
    rows = (_started(row, None, why) if row.pod.likely_start_unknown == COMPUTED else row for row in line.rows)
    return msgspec.structs.replace(line, rows=tuple(rows))


def _started(row: LineRow, start: StartReport | None, unknown: str | None) -> LineRow:
    pod = msgspec.structs.replace(row.pod, likely_start=start, likely_start_unknown=unknown)
    return msgspec.structs.replace(row, pod=pod)


def line_of(state: ClusterState, *, now: int, has_starts: bool = True) -> Line:
    """Return the line of a state, which must not change meanwhile; without likely starts it takes a moment."""
    reading = state.reading
    past, is_known = state.past(now), reading.is_room_known
    if has_starts:
        reader = read_line(reading.world, past, now=now, clock=time.process_time, is_room_known=is_known)
    else:
        reader = QueueReader(reading.world, starts=_computed, past=past, is_room_known=is_known)
    found = reader.in_order()
    counts = Counter(str(waiting.pod.namespace) for waiting in found)
    return Line(len(found), dict(counts), tuple(_row(reader.row(waiting)) for waiting in _shown(found)))


def _computed(_uid: Uid) -> UnknownStart:
    return UnknownStart(COMPUTED)


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
