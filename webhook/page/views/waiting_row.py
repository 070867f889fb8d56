"""A pod that waits in line, as data and as a row of a table: `fairgate queue` and the page show the same columns.

A column is a field of `WaitingReport` and a line of `COLUMNS`; data has the field, each table the line.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from webhook.core.explain.likely_start import StartRange, UnknownStart
from webhook.core.explain.queue_rows import QueueRow
from webhook.core.model.amount import format_gpus, parse_amount
from webhook.core.model.statement import facts_json
from webhook.core.model.text import column_gpus, printable, shortened, span
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.reclaim.holds import rfc3339

_LONGEST: Final = 200


class HolderReport(msgspec.Struct):
    """A holder of GPUs: a controller of pods, a bare pod, or a team of a department."""

    name: str
    gpus: Annotated[str, msgspec.Meta(description="GPUs, as in 2, 0.5 or 3/7")]


class StartReport(msgspec.Struct, rename="camel"):
    """When a pod is likely to start, by a simulation with measured run times. Not a promise."""

    earliest_seconds: Annotated[int, msgspec.Meta(description="from now")]
    latest_seconds: Annotated[int, msgspec.Meta(description="from now")]


class WaitingReport(msgspec.Struct, rename="camel"):
    """A pod that waits in line."""

    namespace: str
    name: str
    team: str
    user: Annotated[str | None, msgspec.Meta(description="who created it; null where that is not known")]
    gpus: Annotated[str, msgspec.Meta(description="GPUs, as in 2, 0.5 or 3/7")]
    since: Annotated[str | None, msgspec.Meta(description="when it was created")]
    place: Annotated[
        int | None,
        msgspec.Meta(description="among all that wait, from 1; null where another controller's gate holds it"),
    ]
    place_in_team: Annotated[int | None, msgspec.Meta(description="among those of its team, from 1")]
    code: Annotated[
        str,
        msgspec.Meta(
            description="WaitsForLimit, WaitsForBorrowers, WaitsForRoom, WaitsInLine, WaitsForGang or WaitsForGate"
        ),
    ]
    cause: Annotated[str, msgspec.Meta(description="what it waits for, in numbers")]
    facts: Annotated[
        dict[str, Any],
        msgspec.Meta(description="what the cause says, by name; amounts of GPUs are texts, as in 2, 0.5 or 3/7"),
    ]
    holders: Annotated[list[HolderReport], msgspec.Meta(description="who holds most of what it waits for")]
    gates: Annotated[list[str], msgspec.Meta(description="scheduling gates of other controllers")]
    likely_start: Annotated[StartReport | None, msgspec.Meta(description="null where it is not known")]
    likely_start_unknown: Annotated[
        str | None, msgspec.Meta(description="why the likely start is not known; null where it is")
    ]


def waiting_report(row: QueueRow) -> WaitingReport:
    """Return a waiting pod as data."""
    waiting, start = row.waiting, row.start
    return WaitingReport(
        namespace=waiting.pod.namespace,
        name=waiting.pod.name,
        team=waiting.team,
        user=waiting.user,
        gpus=format_gpus(row.gpus),
        since=rfc3339(waiting.created) if waiting.created else None,
        place=None if row.place is None else row.place.overall,
        place_in_team=None if row.place is None else row.place.of_team,
        code=row.code,
        cause=row.cause,
        facts=facts_json(row.reason.statement),
        holders=[HolderReport(each.name, format_gpus(each.gpus)) for each in row.holders],
        gates=list(row.gates),
        likely_start=StartReport(start.earliest, start.latest) if isinstance(start, StartRange) else None,
        likely_start_unknown=start.reason if isinstance(start, UnknownStart) else None,
    )


class Column(NamedTuple):
    """A column of the line: its heading, the text of its cells at a time (in seconds of Unix time), and its looks."""

    heading: str
    cell: Callable[[WaitingReport, int], str]
    is_number: bool = False
    is_pod: bool = False
    is_cause: bool = False


def holders_text(report: WaitingReport) -> str:
    """Return who holds what a pod waits for."""
    return ", ".join(f"{short(each.name)} {column_gpus(parse_amount(each.gpus))}" for each in report.holders)


def start_text(report: WaitingReport) -> str:
    """Return a likely start in words."""
    if (start := report.likely_start) is None:
        return "unknown"
    if not start.latest_seconds:
        return "now"
    earliest, latest = span(start.earliest_seconds), span(start.latest_seconds)
    return f"{earliest} to {latest}" if start.earliest_seconds and earliest != latest else f"within {latest}"


def short(text: str) -> str:
    """Return a text that a user or another controller chose, on one line and of a bounded length."""
    return shortened(printable(text), _LONGEST)


def _place(place: int | None) -> str:
    return "-" if place is None else f"{place:,}"


def _waits(report: WaitingReport, now: int) -> str:
    return "-" if report.since is None else span(max(0, now - unix_seconds(report.since)))


COLUMNS: Final = (
    Column("place", lambda row, _: _place(row.place), is_number=True),
    Column("in team", lambda row, _: _place(row.place_in_team), is_number=True),
    Column("pod", lambda row, _: f"{row.namespace}/{row.name}", is_pod=True),
    Column("team", lambda row, _: row.team),
    Column("user", lambda row, _: short(row.user or "-")),
    Column("GPUs", lambda row, _: column_gpus(parse_amount(row.gpus)), is_number=True),
    Column("waits", _waits, is_number=True),
    Column("waits for", lambda row, _: short(row.cause), is_cause=True),
    Column("held by", lambda row, _: holders_text(row) or "-"),
    Column("likely start", lambda row, _: start_text(row)),
)
