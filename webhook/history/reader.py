"""Reads history files, also while a server writes them."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from webhook.core.model.text import printable
from webhook.history import trace_store
from webhook.history.schema import HistoryError, check_format
from webhook.history.store import RECORDED_UNTIL, read_rows
from webhook.history.trace_row import EndedRow, Trace
from webhook.history.usage_row import INTERVAL_SECONDS, Recording

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
            trace = trace_store.read_trace(connection, since, until)
        except msgspec.ValidationError as error:
            raise HistoryError(f"{path} has a row that is not one of a history: {error}") from error
    for row in trace.pods:
        if not all(map(math.isfinite, (row.gpus, row.created, row.bound, row.ended))):
            raise HistoryError(f"{path} has a pod whose times or GPUs are no numbers: {printable(row.uid)}")
    return trace


def read_run_times(path: Path, *, most: int) -> tuple[EndedRow, ...]:
    """Return pods that ran and ended, the latest first; at most so many. Raises HistoryError."""
    with opened(path) as connection:
        try:
            rows = trace_store.read_ended(connection, most)
        except msgspec.ValidationError as error:
            raise HistoryError(f"{path} has a row that is not one of a history: {error}") from error
    return tuple(row for row in rows if all(map(math.isfinite, (row.gpus, row.created, row.bound, row.ended))))


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
