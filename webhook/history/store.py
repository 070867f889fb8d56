"""The store: writes rows of a history to its file, in bounded size. Blocking: call it off the event loop.

One process at a time writes a file, which a lock beside it ensures. A batch is one transaction, so that a process that
is killed leaves it whole or not at all.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webhook.history.schema import HistoryError, prepare
from webhook.history.trace_row import NO_TRACE, Trace
from webhook.history.trace_store import end_missing, prune_trace, write_trace
from webhook.history.usage_row import INTERVAL_SECONDS, UsageKey, UsageKind, UsageRow, interval_of

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
