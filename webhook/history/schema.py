"""The format of a history file: an SQLite database. docs/usage.md describes it; the tables are created here.

Readers name the columns that they read, so a later version may add columns and tables without another FORMAT.
"""

import sqlite3
from typing import Final

from webhook.history.trace_store import TABLES
from webhook.input_error import InputError

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
