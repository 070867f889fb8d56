"""The line as data: the stable format of `-o json` and `-o yaml`."""

from typing import Annotated

import msgspec

from webhook.core.explain.queue_rows import QueueRow
from webhook.core.model.amount import exact_units, format_gpus
from webhook.core.model.names import TeamName
from webhook.page.views.waiting_row import WaitingReport, waiting_report


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
