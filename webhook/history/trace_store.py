"""The tables of what came, on a connection to a history file; each call is part of the caller's transaction."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from webhook.history.trace_row import SCALERS_OF_NAMESPACE, EndedRow, ObjectRow, PodRow, PolicyRow, Trace
from webhook.kube.objects.keys import RUN_TIME, RUN_TIME_LIMIT
from webhook.kube.workloads.scalers import KIND

_Row = TypeVar("_Row", PodRow, EndedRow, ObjectRow, PolicyRow)

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
        "object = CASE excluded.object WHEN '' THEN object ELSE excluded.object END",
        [row for row in trace.pods if row.namespace],
    )
    connection.executemany(
        "UPDATE pods SET ended = max(ended, ?) WHERE uid = ?",
        [(row.ended, row.uid) for row in trace.pods if not row.namespace],
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


_ENDED: Final = """
WITH ran AS (
  SELECT *, row_number() OVER (PARTITION BY team, user ORDER BY ended DESC, uid) AS of_user
  FROM pods WHERE code = '' AND bound > 0 AND ended >= bound
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY team ORDER BY of_user, ended DESC, uid) AS of_team FROM ran
), latest AS (SELECT * FROM ranked ORDER BY of_team, ended DESC, uid LIMIT ?)
SELECT uid, team, user, gpus, created, bound, ended, {values}
FROM latest ORDER BY ended DESC, uid
"""
_SAID: Final = (
    f"CAST(json_extract(object, '$.metadata.annotations.\"{RUN_TIME}\"') AS TEXT)",
    f"CAST(json_extract(object, '$.metadata.annotations.\"{RUN_TIME_LIMIT}\"') AS TEXT)",
    "CAST(json_extract(object, '$.spec.activeDeadlineSeconds') AS INTEGER)",
)
_VALUES: Final = ", ".join(
    f"CASE WHEN json_valid(object) THEN coalesce({value}, {empty}) ELSE {empty} END"
    for value, empty in zip(_SAID, ("''", "''", "0"), strict=True)
)


def read_ended(connection: sqlite3.Connection, most: int) -> tuple[EndedRow, ...]:
    """Return the pods that ran and ended last: of each team and user as many as of others."""
    return _rows(EndedRow, connection.execute(_ENDED.format(values=_VALUES), (most,)))


def _rows(row: type[_Row], found: Iterable[Sequence[object]]) -> tuple[_Row, ...]:
    """Return rows as values; a column of SQLite may hold a value of another type. Raises ValidationError."""
    return tuple(msgspec.convert(list(found), list[row]))  # type: ignore[valid-type]
