"""The line as all viewers share it: computed on a snapshot, at most every few seconds, however many look."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.core.explain.likely_start import StartRange
from webhook.core.explain.queue_rows import QueueReader, QueueRow, written_reason
from webhook.core.model.amount import gpus_text
from webhook.core.model.text import printable, shortened
from webhook.core.world.waiting_pods import WaitingPod
from webhook.page.live.cluster_state import ClusterState
from webhook.page.live.snapshots import SnapshotError, Snapshots
from webhook.simulation.forecast.forecast import Forecast

SECONDS: Final = 4.0
"""How long a line is shown before it is computed again."""

REST: Final = 4
"""A line, or the failure to compute it, is shown for at least so many times as long as that took."""

FIRST: Final = 1_000
OF_NAMESPACE: Final = 100
"""Pods that are shown: the first of all, and the first of each namespace."""

_LONGEST: Final = 300


class LineRow(msgspec.Struct, array_like=True, frozen=True):
    """A waiting pod. `place` is 0 where it is not in line; the likely start is in seconds from now, -1 if unknown.

    `why_unknown` then says why. `written` is what Fairgate wrote on the pod.
    """

    namespace: str
    name: str
    team: str
    user: str
    gpus: str
    created: int
    place: int
    place_in_team: int
    code: str
    cause: str
    holders: tuple[tuple[str, str], ...]
    earliest: int
    latest: int
    why_unknown: str = ""
    written: str = ""


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
    forecast = Forecast(reading.world, reading.runs, now=now, clock=time.process_time)
    reader = QueueReader(reading.world, starts=forecast, is_room_known=reading.is_room_known)
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
    waiting, place = row.waiting, row.place
    start, why = (row.start, "") if isinstance(row.start, StartRange) else (StartRange(-1, -1), row.start.reason)
    return LineRow(
        waiting.pod.namespace,
        waiting.pod.name,
        waiting.team,
        _short(waiting.user or ""),
        gpus_text(row.gpus),
        waiting.created,
        0 if place is None else place.overall,
        0 if place is None else place.of_team,
        row.code,
        _short(row.cause),
        tuple((_short(each.name), gpus_text(each.gpus)) for each in row.holders),
        start.earliest,
        start.latest,
        _short(why),
        _short(written_reason(waiting).text),
    )


def _short(found: str) -> str:
    return shortened(printable(found), _LONGEST)
