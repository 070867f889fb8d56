"""The file of the history.

The rows of what came: pods and refused requests, the objects around them, the policies in force.

`fairgate replay` decides them again. Objects are kept as JSON with the fields that Fairgate reads, as in a world file.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from webhook.addons.history.meter import INTERVAL_SECONDS, UsageKey, UsageKind, UsageRow, interval_of
from webhook.files import InputError
from webhook.kube.workloads.unknown_kinds import KIND

MAX_OBJECT_BYTES: Final = 16_384
"""A larger pod or node is kept without its object: usage counts it, and replay names how many it leaves out."""

SCALERS_OF_NAMESPACE: Final = 100
"""HorizontalPodAutoscalers of one namespace in a file, and in one batch."""


EVICTED: Final = "Evicted"


class PodRow(NamedTuple):
    """A pod, or requests that were refused alike. Times are Unix time, 0 where it did not come to that.

    Of refused requests `code` is the reason, `times` their number, `created` the first and `ended` the last of them. Of
    a pod that was evicted `code` is EVICTED.
    `object` is "" where it is not known, or too large.
    """

    uid: str
    namespace: str
    name: str
    owner: str = ""
    team: str = ""
    user: str = ""
    tier: str = ""
    gpus: float = 0.0
    created: float = 0.0
    bound: float = 0.0
    ended: float = 0.0
    code: str = ""
    times: int = 0
    object: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether it stands for refused requests."""
        return self.times > 0

    @property
    def is_evicted(self) -> bool:
        """Whether it is a pod that was evicted."""
        return self.code == EVICTED


class ObjectRow(NamedTuple):
    """What surrounds pods, as it was last: a node, say, or what scales a workload; `until` is 0 while it exists.

    `name` is namespace/name for kinds in namespaces.
    """

    kind: str
    name: str
    since: float
    until: float = 0.0
    object: str = ""


class PolicyRow(NamedTuple):
    """A policy that was in force from a time on, as YAML."""

    hash: str
    since: float
    documents: str


class Trace(NamedTuple):
    """What came in a time range."""

    pods: tuple[PodRow, ...] = ()
    objects: tuple[ObjectRow, ...] = ()
    policies: tuple[PolicyRow, ...] = ()


NO_TRACE: Final = Trace()


# The tables of what came, on a connection to a history file; each call is part of the caller's transaction.


_Row = TypeVar("_Row", PodRow, ObjectRow, PolicyRow)

MAX_PODS: Final = 200_000
"""Pods of a file. Beyond that those of the team with most of them go first, so that no tenant displaces others'."""
_PRUNED: Final = 5_000

TABLES: Final = """
CREATE TABLE IF NOT EXISTS pods (
  uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, team TEXT NOT NULL,
  user TEXT NOT NULL, tier TEXT NOT NULL, gpus REAL NOT NULL, created REAL NOT NULL, bound REAL NOT NULL,
  ended REAL NOT NULL, code TEXT NOT NULL, times INTEGER NOT NULL, object TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pods_by_time ON pods (team, created);
CREATE TABLE IF NOT EXISTS objects (
  kind TEXT NOT NULL, name TEXT NOT NULL, since REAL NOT NULL, until REAL NOT NULL, object TEXT NOT NULL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS policies (
  since REAL NOT NULL, hash TEXT NOT NULL, documents TEXT NOT NULL, PRIMARY KEY (since, hash)
) WITHOUT ROWID;
"""


def write_trace(connection: sqlite3.Connection, trace: Trace) -> None:
    """Add rows. A row without a namespace only ends a pod. A known pod keeps what is empty; refusals add up."""
    connection.executemany(
        "INSERT INTO pods "
        "(uid, namespace, name, owner, team, user, tier, gpus, created, bound, ended, code, times, object) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "team = excluded.team, tier = excluded.tier, gpus = excluded.gpus, "
        "user = CASE excluded.user WHEN '' THEN user ELSE excluded.user END, "
        "bound = CASE bound WHEN 0 THEN excluded.bound ELSE bound END, "
        "ended = max(ended, excluded.ended), times = times + excluded.times, "
        "code = CASE excluded.code WHEN '' THEN code ELSE excluded.code END, "
        "object = CASE excluded.object WHEN '' THEN object ELSE excluded.object END",
        [row for row in trace.pods if row.namespace],
    )
    connection.executemany(
        "UPDATE pods SET ended = max(ended, ?), code = CASE ? WHEN '' THEN code ELSE ? END WHERE uid = ?",
        [(row.ended, row.code, row.code, row.uid) for row in trace.pods if not row.namespace],
    )
    connection.executemany(
        "INSERT INTO objects (kind, name, since, until, object) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "until = excluded.until, object = CASE excluded.object WHEN '' THEN object ELSE excluded.object END",
        trace.objects,
    )
    connection.executemany("INSERT OR IGNORE INTO policies (hash, since, documents) VALUES (?, ?, ?)", trace.policies)


def end_missing(connection: sqlite3.Connection, alive: Iterable[str], at: float) -> None:
    """End the pods that ended while nothing was recorded: at the time of the last record."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS alive (uid TEXT PRIMARY KEY)")
    connection.execute("DELETE FROM alive")
    connection.executemany("INSERT OR IGNORE INTO alive VALUES (?)", ((uid,) for uid in alive))
    connection.execute(
        "UPDATE pods SET ended = max(?, created, bound) WHERE ended = 0 AND uid NOT IN (SELECT uid FROM alive)", (at,)
    )


def prune_trace(connection: sqlite3.Connection, before: float) -> None:
    """Delete what is too old, and pods and autoscalers beyond their number."""
    connection.execute("DELETE FROM pods WHERE ended > 0 AND ended < ?", (before,))
    connection.execute("DELETE FROM objects WHERE until > 0 AND until < ?", (before,))
    connection.execute("DELETE FROM policies WHERE since < ? AND since < (SELECT max(since) FROM policies)", (before,))
    connection.execute(
        "DELETE FROM objects WHERE kind = :kind AND name IN (SELECT name FROM (SELECT name, row_number() OVER "
        "(PARTITION BY substr(name, 1, instr(name, '/')) ORDER BY until > 0, since DESC, name) AS place "
        "FROM objects WHERE kind = :kind) WHERE place > :most)",
        {"kind": KIND, "most": SCALERS_OF_NAMESPACE},
    )
    (count,) = connection.execute("SELECT count(*) FROM pods").fetchone()
    while count > MAX_PODS:
        largest = "SELECT team FROM pods GROUP BY team ORDER BY count(*) DESC, team LIMIT 1"
        (team,) = connection.execute(largest).fetchone()
        deleted = connection.execute(
            "DELETE FROM pods WHERE uid IN (SELECT uid FROM pods WHERE team = ? ORDER BY created, uid LIMIT ?)",
            (team, min(_PRUNED, count - MAX_PODS)),
        )
        count -= deleted.rowcount


def read_trace(connection: sqlite3.Connection, since: float, until: float) -> Trace:
    """Return the pods that were there in a time range, with what surrounded them."""
    pods = connection.execute(
        "SELECT uid, namespace, name, owner, team, user, tier, gpus, created, bound, ended, code, times, object "
        "FROM pods "
        "WHERE created < ? AND (ended = 0 OR ended >= ?) ORDER BY created, uid",
        (until, since),
    )
    objects = connection.execute(
        "SELECT kind, name, since, until, object FROM objects WHERE since < ? AND (until = 0 OR until >= ?) "
        "ORDER BY kind, name",
        (until, since),
    )
    policies = connection.execute(
        "SELECT hash, since, documents FROM policies WHERE since < ? ORDER BY since", (until,)
    )
    return Trace(_rows(PodRow, pods), _rows(ObjectRow, objects), _rows(PolicyRow, policies))


def _rows(row: type[_Row], found: Iterable[Sequence[object]]) -> tuple[_Row, ...]:
    """Return rows as values; a column of SQLite may hold a value of another type. Raises ValidationError."""
    return tuple(msgspec.convert(list(found), list[row]))  # type: ignore[valid-type]


# The format of a history file: an SQLite database. docs/tasks/usage.md describes it; the tables are created here.
#
# Readers name the columns that they read, so a later version may add columns and tables without another FORMAT.


FORMAT: Final = 1
"""Kept as the database's user_version. It is raised only where an earlier version could not read the file."""

APPLICATION_ID: Final = 0x46474154
"""Kept in the file's header: "FGAT". It tells a history from other databases."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage (
  start INTEGER NOT NULL, kind TEXT NOT NULL, team TEXT NOT NULL, user TEXT NOT NULL, model TEXT NOT NULL,
  department TEXT NOT NULL, amount REAL NOT NULL,
  PRIMARY KEY (start, kind, team, user, model)
) WITHOUT ROWID;
"""


class HistoryError(InputError):
    """A history cannot be read or written; the text has the reason and what to do."""


def prepare(connection: sqlite3.Connection, *, name: str) -> None:
    """Create the tables of a new file; check an existing one. Raises HistoryError for a file of another kind."""
    is_new = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not is_new:
        check_format(connection, name=name)
    connection.executescript(_TABLES + TABLES)
    if is_new:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


def check_format(connection: sqlite3.Connection, *, name: str) -> None:
    """Raise HistoryError unless a database is a history that this version reads."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise HistoryError(f"{name} is not a history of Fairgate: `fairgate serve --history FILE` writes one")
    if found > FORMAT:
        raise HistoryError(f"{name} has format {found}, and this version reads up to {FORMAT}: use a later Fairgate")


# The store: writes rows of a history to its file, in bounded size. Blocking: call it off the event loop.
#
# One process at a time writes a file, which a lock beside it ensures. A batch is one transaction, so that a process
# that is killed leaves it whole or not at all.


DEFAULT_DAYS: Final = 90
DEFAULT_MEGABYTES: Final = 1024
_DAY_SECONDS: Final = 86_400
_PAGE_BYTES: Final = 4096
_FULL: Final = 0.9
"""Part of the size from which the oldest rows are deleted."""
_BUSY_SECONDS: Final = 1.0
"""How long to wait for a reader's lock: the rows are written again with the next batch."""
RECORDED_UNTIL: Final = "recorded_until"


@dataclass(frozen=True, slots=True)
class HistoryBounds:
    """How old rows and how large the file may become."""

    days: int = DEFAULT_DAYS
    megabytes: int = DEFAULT_MEGABYTES


@dataclass(frozen=True, slots=True)
class Batch:
    """What is written at once: whole amounts, and the time until which everything is recorded."""

    rows: Sequence[UsageRow]
    until: float
    trace: Trace = NO_TRACE


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an earlier process wrote last: until when, and the rows of the interval that was not over."""

    until: float
    rows: tuple[UsageRow, ...]


class HistoryStore:
    """A history file that is open for writing. Raises HistoryError if it cannot be opened."""

    def __init__(self, path: Path, bounds: HistoryBounds = HistoryBounds()) -> None:
        self.path = path
        self._bounds = bounds
        self._lock_fd = _locked(path)
        try:
            with _translated(path):
                self._connection = _opened(path, bounds)
        except BaseException:
            os.close(self._lock_fd)
            raise

    def close(self) -> None:
        """Close the file, and let another process write it; closing it again changes nothing."""
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def recorded(self) -> Recorded | None:
        """Return until when the file records, and the rows of that interval; None for a new file."""
        with _translated(self.path):
            found = self._connection.execute("SELECT value FROM meta WHERE key = ?", (RECORDED_UNTIL,)).fetchone()
            if found is None:
                return None
            until = float(found[0])
            rows = read_rows(self._connection, interval_of(until), until + _DAY_SECONDS)
        return Recorded(until, tuple(rows))

    def write(self, batch: Batch) -> None:
        """Write a batch. Raises HistoryError if nothing of it could be written."""
        values = [(row.start, *row.key, row.department, row.amount) for row in batch.rows]
        with _translated(self.path), self._transaction():
            self._connection.executemany(
                "INSERT INTO usage (start, kind, team, user, model, department, amount) VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET department = excluded.department, amount = excluded.amount",
                values,
            )
            self._connection.execute(
                "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (RECORDED_UNTIL, repr(batch.until)),
            )
            write_trace(self._connection, batch.trace)

    def end_missing(self, alive: Sequence[str], *, at: float) -> None:
        """End the pods that are no longer alive: they ended while nothing was recorded. Raises HistoryError."""
        with _translated(self.path), self._transaction():
            end_missing(self._connection, alive, at)

    def prune(self, now: float) -> None:
        """Delete what is too old; and if the file is nearly full, its oldest days. Raises HistoryError."""
        with _translated(self.path):
            self._delete_before(now - self._bounds.days * _DAY_SECONDS)
            while self._is_nearly_full():
                (oldest,) = self._connection.execute("SELECT min(start) FROM usage").fetchone()
                if oldest is None:
                    return
                self._delete_before(oldest + _DAY_SECONDS)

    def _delete_before(self, time: float) -> None:
        with self._transaction():
            self._connection.execute("DELETE FROM usage WHERE start < ?", (time,))
            prune_trace(self._connection, time)

    def _is_nearly_full(self) -> bool:
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        return bool((pages - free) * _PAGE_BYTES > _FULL * self._bounds.megabytes * 1024 * 1024)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk may have rolled back already
                self._connection.execute("ROLLBACK")
            raise


def read_rows(
    connection: sqlite3.Connection,
    since: float,
    until: float,
    *,
    step_seconds: int = INTERVAL_SECONDS,
    most: int = -1,
) -> list[UsageRow]:
    """Return the rows of a time range, the oldest first, summed by steps; kinds of later versions are left out."""
    found = connection.execute(
        "SELECT start / :step * :step AS step, kind, team, user, model, sum(amount), max(department) FROM usage "
        "WHERE start >= :since AND start < :until GROUP BY step, kind, team, user, model "
        "ORDER BY step, kind, team, user, model LIMIT :most",
        {"step": step_seconds, "since": since, "until": until, "most": most},
    )
    return [
        UsageRow(start, UsageKey(UsageKind(kind), team, user, model), amount, department)
        for start, kind, team, user, model, amount, department in found
        if kind in _KINDS
    ]


_KINDS: Final = frozenset(UsageKind)


def _opened(path: Path, bounds: HistoryBounds) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA temp_store = MEMORY")  # a container's root may be read-only
        connection.execute("PRAGMA synchronous = NORMAL")  # whole after a kill; a power cut may take the last batches
        connection.execute(f"PRAGMA max_page_count = {bounds.megabytes * 1024 * 1024 // _PAGE_BYTES}")
        prepare(connection, name=str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _locked(path: Path) -> int:
    """Return a file descriptor whose lock no other process has. Raises HistoryError."""
    lock = path.with_name(f"{path.name}-lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise HistoryError(f"{path} cannot be opened: {error.strerror}: {lock}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise HistoryError(f"{path} is written by another process: give each replica a file of its own") from error
    return descriptor


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise HistoryError(f"{path}: {error}") from error
