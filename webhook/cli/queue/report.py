"""The line as data: the stable format of `-o json` and `-o yaml`."""

from typing import Annotated

import msgspec

from webhook.cli.reason_report import Facts
from webhook.core.explain.likely_start import StartRange, UnknownStart
from webhook.core.explain.queue_rows import QueueRow
from webhook.core.model.amount import exact_units, format_gpus
from webhook.core.model.names import TeamName
from webhook.core.model.statement import facts_json
from webhook.kube.reclaim.holds import rfc3339


class HolderReport(msgspec.Struct):
    """A holder of what a pod waits for: a controller of pods, a bare pod, or a team of a department."""

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
    facts: Facts
    holders: Annotated[list[HolderReport], msgspec.Meta(description="who holds most of what it waits for")]
    gates: Annotated[list[str], msgspec.Meta(description="scheduling gates of other controllers")]
    likely_start: Annotated[StartReport | None, msgspec.Meta(description="null where it is not known")]
    likely_start_unknown: Annotated[
        str | None, msgspec.Meta(description="why the likely start is not known; null where it is")
    ]


class LineReport(msgspec.Struct):
    """The line of one team."""

    team: str
    pods: int
    gpus: str


class QueueReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate queue`."""

    teams: Annotated[list[LineReport], msgspec.Meta(description="teams with waiting pods, by name")]
    pods: Annotated[list[WaitingReport], msgspec.Meta(description="by place; at the end those that are not in line")]
    left_out: Annotated[
        list[str], msgspec.Meta(description="what the user may not read, and which right would show it")
    ]


def report_of(rows: list[QueueRow], left_out: list[str]) -> QueueReport:
    """Return the line as data."""
    return QueueReport(_lines(rows), [waiting_report(row) for row in rows], left_out)


def _lines(rows: list[QueueRow]) -> list[LineReport]:
    by_team: dict[TeamName, list[QueueRow]] = {}
    for row in rows:
        by_team.setdefault(row.waiting.team, []).append(row)
    return [
        LineReport(team, len(found), format_gpus(exact_units(sum(row.gpus for row in found))))
        for team, found in sorted(by_team.items())
    ]


def waiting_report(row: QueueRow) -> WaitingReport:
    """Return a waiting pod as data."""
    waiting, start = row.waiting, row.start
    return WaitingReport(
        waiting.pod.namespace,
        waiting.pod.name,
        waiting.team,
        waiting.user,
        format_gpus(row.gpus),
        rfc3339(waiting.created) if waiting.created else None,
        None if row.place is None else row.place.overall,
        None if row.place is None else row.place.of_team,
        row.code,
        row.cause,
        facts_json(row.reason.statement),
        [HolderReport(each.name, format_gpus(each.gpus)) for each in row.holders],
        list(row.gates),
        StartReport(start.earliest, start.latest) if isinstance(start, StartRange) else None,
        start.reason if isinstance(start, UnknownStart) else None,
    )
