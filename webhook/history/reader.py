"""Sums and ranges.

Decoded Kubernetes objects as JSON again: only the fields that were read, and none that are absent.
"""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from webhook.core.explain.line_rows import SIZES, percentiles_of
from webhook.core.explain.node_rows import ClusterUse
from webhook.core.model.amounts import printable
from webhook.history import store
from webhook.history.meter import (
    INTERVAL_SECONDS,
    OF_EVICTIONS,
    OF_USE,
    Recording,
    UsageKey,
    UsageKind,
    UsageRow,
    group_of,
)
from webhook.history.store import (
    FORMAT,
    MAX_OBJECT_BYTES,
    RECORDED_UNTIL,
    HistoryError,
    ObjectRow,
    PodRow,
    PolicyRow,
    Trace,
    check_format,
    read_rows,
)


def object_json(found: msgspec.Struct, *, api_version: str, kind: str) -> str:
    """Return an object as JSON; "" if it is too large to be kept."""
    body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, **_plain(found)})
    return body.decode() if len(body) <= MAX_OBJECT_BYTES else ""


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON values have no common type
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        pairs = ((field.encode_name, getattr(value, field.name)) for field in fields)
        return {name: _plain(each) for name, each in pairs if not _is_absent(each)}
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _is_absent(value: object) -> bool:
    if isinstance(value, msgspec.Raw):
        return not bytes(value)
    return value is None or value == ""


# Reads history files, also while a server writes them.


_MAGIC = b"SQLite format 3\0"


def read_usage(
    path: Path, since: float, until: float, *, step_seconds: int = INTERVAL_SECONDS, most: int = -1
) -> Recording:
    """Return the rows of a time range from a file, summed by steps; at most so many. Raises HistoryError."""
    with opened(path) as connection:
        rows = read_rows(connection, since, until, step_seconds=step_seconds, most=most)
    return Recording(str(path), tuple(rows))


def read_trace(path: Path, since: float, until: float) -> Trace:
    """Return what came in a time range, from a file. Raises HistoryError."""
    with opened(path) as connection:
        try:
            trace = store.read_trace(connection, since, until)
        except msgspec.ValidationError as error:
            raise HistoryError(f"{path} has a row that is not one of a history: {error}") from error
    for row in trace.pods:
        if not all(map(math.isfinite, (row.gpus, row.created, row.bound, row.ended))):
            raise HistoryError(f"{path} has a pod whose times or GPUs are no numbers: {printable(row.uid)}")
    return trace


def recorded_range(path: Path) -> tuple[float, float]:
    """Return from when to when a file records. Raises HistoryError."""
    with opened(path) as connection:
        (start,) = connection.execute("SELECT min(start) FROM usage").fetchone()
        found = connection.execute("SELECT value FROM meta WHERE key = ?", (RECORDED_UNTIL,)).fetchone()
    if start is None or found is None:
        raise HistoryError(f"{path} is empty: nothing has been recorded in it yet")
    return start, float(found[0])


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection to a history. Raises HistoryError for what is none, is damaged or too new."""
    _check_header(path)
    try:
        with closing(_connect(path)) as connection:
            check_format(connection, name=str(path))
            yield connection
    except sqlite3.DatabaseError as error:
        raise HistoryError(
            f"{path} cannot be read: {error}; it may be truncated, or a copy without its -wal file"
        ) from (error)


def _connect(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}"
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=5.0)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:  # a folder that cannot be written has no room for the index of the -wal file
        connection.close()
        return sqlite3.connect(f"{address}?immutable=1", uri=True)
    return connection


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(100)
            size = file.seek(0, 2)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}") from error
    if not header.startswith(_MAGIC):
        raise HistoryError(f"{path} is not a history of Fairgate: `fairgate serve --history FILE` writes one")
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    if size < (65_536 if page == 1 else page) * pages and not path.with_name(f"{path.name}-wal").exists():
        raise HistoryError(f"{path} is truncated: it has {size:,} bytes of {page * pages:,}; copy it again")


# Answers from recorded usage: merged over recorders, summed by team and the like, and as lines over time. Pure.


HOUR_SECONDS: Final = 3600
_DIGITS: Final = 6


class By(StrEnum):
    """What usage is summed by."""

    TEAM = "team"
    USER = "user"
    MODEL = "model"
    TIER = "tier"
    DEPARTMENT = "department"


class UsageSum(msgspec.Struct, rename="camel"):
    """GPU-hours of one team, user, model, tier or department, or of the cluster: of pods that held GPUs or waited.

    `idle` were not held, None where no GPU can be attributed. `lost` is work of evicted pods that is done again,
    `moved` that of pods that were moved, `saved` what they saved after their warning. `refused` are requests,
    `refused_gpus` what they asked for. `held_idle` were held and not used, None where that is not known.
    """

    name: str
    guaranteed: float = 0.0
    preemptible: float = 0.0
    idle: float | None = None
    waiting: float = 0.0
    lost: float = 0.0
    moved: float = 0.0
    saved: float = 0.0
    refused: int = 0
    refused_gpus: float = 0.0
    held_idle: float | None = None

    def rounded(self) -> "UsageSum":
        """Return it with numbers as they are printed."""
        found = msgspec.structs.asdict(self).items()
        return msgspec.structs.replace(self, **{k: round(v, _DIGITS) for k, v in found if isinstance(v, float)})


@dataclass(frozen=True, slots=True)
class UsageOverTime:
    """A team over time: average GPUs of each step, None where nothing was recorded."""

    guaranteed: Sequence[float | None]
    preemptible: Sequence[float | None]
    waiting: Sequence[float | None]
    refused: Sequence[int | None]


def merged(recordings: Iterable[Recording]) -> list[UsageRow]:
    """Return one row for each key of an interval, from what several replicas recorded of the same cluster.

    Each of them sees all pods, and can only miss something while it does not run: what was held is taken from the one
    that observed the interval longest, so nothing counts twice. Refusals are known only to the replica that answered:
    they add up.
    """
    intervals: dict[int, dict[str, list[UsageRow]]] = {}
    for recording in recordings:
        for row in recording.rows:
            intervals.setdefault(row.start, {}).setdefault(recording.name, []).append(row)
    rows: list[UsageRow] = []
    for start in sorted(intervals):
        by_name = intervals[start]
        best = max(sorted(by_name), key=lambda name: _observed(by_name[name]))
        rows += [row for row in by_name[best] if row.key.kind not in _ADDED]
        sums: dict[UsageKey, UsageRow] = {}
        for row in (row for found in by_name.values() for row in found if row.key.kind in _ADDED):
            before = sums.get(row.key)
            sums[row.key] = row if before is None else row._replace(amount=row.amount + before.amount)
        rows += sums.values()
    return rows


_ADDED: Final = frozenset({UsageKind.REFUSED, UsageKind.REFUSED_GPUS})


def _observed(rows: Iterable[UsageRow]) -> float:
    return sum(row.amount for row in rows if row.key.kind is UsageKind.OBSERVED)


def usage_by(rows: Iterable[UsageRow], by: By) -> list[UsageSum]:
    """Return the sums by name, those that held most first."""
    sums: dict[str, UsageSum] = {}
    for row in rows:
        if (name := _name(row, by)) is not None:
            _add(sums.setdefault(name, UsageSum(name)), row)
    return sorted(sums.values(), key=lambda each: (-(each.guaranteed + each.preemptible), each.name))


def total(rows: Iterable[UsageRow]) -> UsageSum:
    """Return the sum of the cluster; idle are the free GPUs of its nodes."""
    found = UsageSum("total")
    for row in rows:
        if row.key.kind is not UsageKind.UNUSED:
            _add(found, row)
    return found


class SizeWaits(msgspec.Struct, rename="camel"):
    """Jobs of one class of sizes that started, and for how many seconds 50, 90 and 99 percent of them waited at most.

    Null is longer than three days.
    """

    size: str
    jobs: int
    wait_p50: float | None
    wait_p90: float | None
    wait_p99: float | None


class Ratios(msgspec.Struct, rename="camel"):
    """How the cluster was used, as parts of 1; null where no GPUs were recorded."""

    allocation: float | None = None
    occupancy: float | None = None
    fragmentation: float | None = None
    beyond_fewest: float | None = None
    waits: list[SizeWaits] = []


def ratios(rows: Iterable[UsageRow]) -> Ratios:
    """Return the ratios of a time range; the allocation is that of its last interval."""
    uses: dict[int, dict[UsageKind, float]] = {}
    waits: dict[str, dict[float, int]] = {}
    for row in rows:
        kind = row.key.kind
        if kind in _USE:
            uses.setdefault(row.start, {})[kind] = row.amount
        elif kind is UsageKind.STARTED and (group := group_of(row.key)) is not None:
            size, bound = group
            counts = waits.setdefault(size, {})
            counts[bound] = counts.get(bound, 0) + round(row.amount)
    found = Ratios(waits=[SizeWaits(size, *percentiles_of(waits[size])) for size in SIZES if size in waits])
    if uses:
        last, total = (_use(each) for each in ([uses[max(uses)]], uses.values()))
        found.allocation, found.occupancy = round(last.allocation, _DIGITS), round(total.allocation, _DIGITS)
        found.fragmentation, found.beyond_fewest = (
            round(total.fragmentation, _DIGITS),
            round(total.beyond_fewest, _DIGITS),
        )
    return found


def _use(amounts: Iterable[Mapping[UsageKind, float]]) -> ClusterUse:
    """Return the amounts of some intervals together."""
    found = list(amounts)
    return ClusterUse(*(sum(each.get(kind, 0.0) for each in found) for kind in OF_USE))


_USE: Final = frozenset(OF_USE)


def observed_hours(rows: Iterable[UsageRow]) -> float:
    """Return for how many hours the cluster was observed."""
    return _observed(rows) / HOUR_SECONDS


def team_lines(
    rows: Iterable[UsageRow], *, since: float, until: float, step_seconds: int
) -> Mapping[str, UsageOverTime]:
    """Return a line for each team with usage; `step_seconds` is a multiple of INTERVAL_SECONDS."""
    steps = max(0, -int(-(until - since) // step_seconds))
    observed = [False] * steps
    amounts: dict[str, dict[UsageKind, list[float]]] = {}
    for row in rows:
        step = int((row.start - since) // step_seconds)
        if not 0 <= step < steps:
            continue
        if row.key.kind is UsageKind.OBSERVED:
            observed[step] = True
        elif row.key.team and row.key.kind in _LINES:
            kinds = amounts.setdefault(row.key.team, {kind: [0.0] * steps for kind in _LINES})
            kinds[row.key.kind][step] += row.amount
    seconds = [
        min(step_seconds, until - since - step * step_seconds) if observed[step] else None for step in range(steps)
    ]
    return {team: _line(kinds, seconds) for team, kinds in sorted(amounts.items())}


_LINES: Final = (UsageKind.HELD_GUARANTEED, UsageKind.HELD_PREEMPTIBLE, UsageKind.WAITING, UsageKind.REFUSED)


def _line(amounts: Mapping[UsageKind, Sequence[float]], seconds: Sequence[float | None]) -> UsageOverTime:
    def averages(kind: UsageKind) -> list[float | None]:
        return [amount / of if of else None for amount, of in zip(amounts[kind], seconds, strict=True)]

    refused = [int(count) if of else None for count, of in zip(amounts[UsageKind.REFUSED], seconds, strict=True)]
    return UsageOverTime(
        averages(UsageKind.HELD_GUARANTEED), averages(UsageKind.HELD_PREEMPTIBLE), averages(UsageKind.WAITING), refused
    )


def _name(row: UsageRow, by: By) -> str | None:
    """Return the name that a row counts to; None where it counts to none."""
    key = row.key
    match by:
        case By.TEAM:
            return key.team or None
        case By.DEPARTMENT:
            return row.department if key.team else None
        case By.USER:
            return key.user if key.team and key.kind is not UsageKind.UNUSED else None
        case By.MODEL:
            return key.model if key.kind in (*_HELD, *OF_EVICTIONS, UsageKind.HELD_IDLE, UsageKind.FREE) else None
        case By.TIER:
            return _TIERS.get(key.kind)


_HELD: Final = (UsageKind.HELD_GUARANTEED, UsageKind.HELD_PREEMPTIBLE)
_TIERS: Final = {UsageKind.HELD_GUARANTEED: "guaranteed", UsageKind.HELD_PREEMPTIBLE: "preemptible"}


_HOURS: Final = {
    UsageKind.HELD_GUARANTEED: "guaranteed",
    UsageKind.HELD_PREEMPTIBLE: "preemptible",
    UsageKind.HELD_IDLE: "held_idle",
    UsageKind.WAITING: "waiting",
    UsageKind.UNUSED: "idle",
    UsageKind.FREE: "idle",
} | {kind: kind.value for kind in OF_EVICTIONS}
"""The field of UsageSum that a kind of GPU-seconds counts to."""


def _add(found: UsageSum, row: UsageRow) -> None:
    kind = row.key.kind
    if (name := _HOURS.get(kind)) is not None:
        setattr(found, name, (getattr(found, name) or 0.0) + row.amount / HOUR_SECONDS)
    elif kind is UsageKind.REFUSED:
        found.refused += round(row.amount)
    elif kind is UsageKind.REFUSED_GPUS:
        found.refused_gpus += row.amount


def whole_intervals(since: float, until: float) -> tuple[int, int]:
    """Return a time range widened to whole intervals."""
    start = int(since // INTERVAL_SECONDS) * INTERVAL_SECONDS
    return start, -int(-until // INTERVAL_SECONDS) * INTERVAL_SECONDS


# Recorded usage on the wire: how a server sends rows to `fairgate usage`. Fields that are not known are left out.


MAX_STEPS: Final = 400
"""Steps of an answer: a longer range has longer steps, each of whole intervals."""
MAX_ROWS: Final = 200_000
_AT_ONCE: Final = 500
_KINDS: Final = frozenset(UsageKind)


class _Row(msgspec.Struct, frozen=True, gc=False):
    start: int
    kind: str
    team: str = ""
    user: str = ""
    model: str = ""
    amount: float = 0.0
    department: str = ""


class _Answer(msgspec.Struct, frozen=True):
    format: int
    rows: list[_Row] = []


def step_seconds(since: float, until: float) -> int:
    """Return the step of an answer for a time range."""
    intervals = max(1, -int(-(until - since) // INTERVAL_SECONDS))
    return INTERVAL_SECONDS * -(-intervals // MAX_STEPS)


def encode(rows: Iterable[UsageRow]) -> bytes:
    """Return the answer with these rows; encoded in parts, so that a thread that does it holds the others up little."""
    parts, part = [], []
    for row in rows:
        part.append(_Row(row.start, *row.key, row.amount, row.department))
        if len(part) == _AT_ONCE:
            parts.append(msgspec.json.encode(part)[1:-1])
            part = []
    if part:
        parts.append(msgspec.json.encode(part)[1:-1])
    return b'{"format":%d,"rows":[%s]}' % (FORMAT, b",".join(parts))


MAX_PODS: Final = 20_000
"""Pods of one answer, each with its object of some kilobytes."""


class RecordedTrace(msgspec.Struct, frozen=True):
    """What came in a time range of a server, and from when to when it records."""

    format: int
    since: float
    until: float
    pods: tuple[PodRow, ...] = ()
    objects: tuple[ObjectRow, ...] = ()
    policies: tuple[PolicyRow, ...] = ()

    @property
    def trace(self) -> Trace:
        """The rows."""
        return Trace(self.pods, self.objects, self.policies)


def recorded_trace(path: Path, since: float, until: float) -> RecordedTrace:
    """Return what came in a time range, from a file, and what the file records. Raises HistoryError."""
    start, end = recorded_range(path)
    return RecordedTrace(FORMAT, start, end, *read_trace(path, since, until))


def decode_trace(body: bytes, *, name: str) -> RecordedTrace:
    """Return what a server answers. Raises HistoryError."""
    try:
        answer = msgspec.json.decode(body, type=RecordedTrace)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HistoryError(f"{name} did not answer with recorded pods: {error}") from error
    if answer.format > FORMAT:
        raise HistoryError(f"{name} answers in format {answer.format}, and this version reads up to {FORMAT}")
    return answer


def decode(body: bytes, *, name: str) -> Recording:
    """Return the rows of an answer. Raises HistoryError."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HistoryError(f"{name} did not answer with a history: {error}") from error
    if answer.format > FORMAT:
        raise HistoryError(f"{name} answers in format {answer.format}, and this version reads up to {FORMAT}")
    return Recording(
        name,
        tuple(
            UsageRow(
                row.start, UsageKey(UsageKind(row.kind), row.team, row.user, row.model), row.amount, row.department
            )
            for row in answer.rows
            if row.kind in _KINDS
        ),
    )
