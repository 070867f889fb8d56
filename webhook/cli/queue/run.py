"""Runs `fairgate queue`: rows, past waits, tables.

Places and causes come from the world; how long earlier pods waited is what the leader of a cluster published.
"""

import time
from collections.abc import Iterator
from typing import Annotated, Final

import click
import msgspec

from webhook.cli.grid import Column, Grid, Kind, Line
from webhook.cli.options import columns, is_colored
from webhook.cli.output import to_data
from webhook.cli.queue.command import Options
from webhook.cli.queue.rows import COLUMNS, WaitingReport, published_waits, waiting_report, why_no_evictor
from webhook.cli.queue.rows import Column as LineColumn
from webhook.cli.screen import Screen, progress
from webhook.cli.world_source import (
    WorldError,
    WorldObjects,
    choose_policy,
    describe_world,
    origin_of,
    read_objects,
    world_of,
)
from webhook.core.explain.line_rows import QueueReader, QueueRow
from webhook.core.model.amounts import TeamName, agreeing, exact_units, format_gpus, plural, plural_gpus
from webhook.core.world.world import World

# The queue as data: the stable format of `-o json` and `-o yaml`.


class LineReport(msgspec.Struct):
    """The line of one team."""

    team: str
    pods: int
    gpus: str


class QueueReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate queue`."""

    teams: Annotated[list[LineReport], msgspec.Meta(description="teams with waiting pods, by name")]
    pods: Annotated[list[WaitingReport], msgspec.Meta(description="by place; at the end those that are not queued")]
    left_out: Annotated[
        list[str], msgspec.Meta(description="what the user may not read, and which right would show it")
    ]


def report_of(rows: list[QueueRow], left_out: list[str]) -> QueueReport:
    """Return the queue as data."""
    return QueueReport(_lines(rows), [waiting_report(row) for row in rows], left_out)


def _lines(rows: list[QueueRow]) -> list[LineReport]:
    by_team: dict[TeamName, list[QueueRow]] = {}
    for row in rows:
        by_team.setdefault(row.waiting.team, []).append(row)
    return [
        LineReport(team, len(found), format_gpus(exact_units(sum(row.gpus for row in found))))
        for team, found in sorted(by_team.items())
    ]


# The queue as a table for terminals.


_KINDS: Final = {"waits for": Kind.TEXT, "held by": Kind.LIST, "earlier waits": Kind.TEXT}
_GOES: Final = {"in team": 1, "user": 2, "held by": 3, "team": 4}
"""The order in which columns are left out on a narrow terminal."""


def to_table(
    rows: list[QueueRow], *, now: int, limit: int, source: str, width: int, is_colored: bool, no_evictor: str = ""
) -> str:
    """Return the first queued pods as a table of this width, with the world's source below."""
    screen = Screen(width=width, is_colored=is_colored)
    if rows:
        shown = [waiting_report(row) for row in rows[:limit]]
        table = Grid(*map(_column, COLUMNS))
        for row in shown:
            cells = ((column, column.cell(row, now)) for column in COLUMNS)
            table.add_row(*(Line(text, style="yellow" if column.is_cause else "") for column, text in cells))
        screen.show(table)
        if len(rows) > limit:
            screen.show(f"and {plural(len(rows) - limit, 'more pod')}: --limit, --team or -o json shows them")
        screen.show(*(Line(line, style="dim") for line in _notes(shown, no_evictor=no_evictor)))
        gpus = plural_gpus(exact_units(sum(row.gpus for row in rows)))
        ask = agreeing(len(rows), "asks", "ask")
        screen.show(Line(f"total: {plural(len(rows), 'pod')} that {ask} for {gpus}", style="bold"))
    else:
        screen.show("no pod is queued")
    screen.show("", Line(source))
    return screen.text


def _column(column: LineColumn) -> Column:
    kind = Kind.NUMBER if column.is_number else _KINDS.get(column.heading, Kind.NAME)
    return Column(column.heading, kind, _GOES.get(column.heading, 0))


def _notes(rows: list[WaitingReport], *, no_evictor: str) -> Iterator[str]:
    """Yield what earlier waits are, and that nothing is taken back without an evictor."""
    if any(row.earlier_starts is not None for row in rows):
        yield "earlier waits: how long the last pods of this size in the team waited in the queue, not promised"
    if no_evictor:
        yield f"{no_evictor}: no borrowed GPUs are reclaimed"


# Runs `fairgate queue`.


def run(options: Options) -> None:
    """Show the queue."""
    with progress("Reading"):
        policy = choose_policy(options.policy, options.source)
        found = read_objects(options.source, namespaces=options.namespaces)
        world = world_of(found, policy, name=origin_of(options.source).name)
        text = _written(options, found, world)
    found.coverage.print_note()
    click.echo(text, nl=False)  # rich hides standard output while it shows a status


def _written(options: Options, found: WorldObjects, world: World) -> str:
    now = int(time.time())
    team = None if options.team is None else _known(TeamName(options.team), world)
    waits = published_waits(options.source)
    reader = QueueReader(world, waits=waits, is_room_known=found.coverage.is_room_known, now=now)
    only = options.namespaces
    rows = [row for row in reader.rows(team) if not only or row.waiting.pod.namespace in only]
    if options.layout.is_data:
        return to_data(report_of(rows, found.coverage.notes()), options.layout)
    no_evictor = why_no_evictor(options.source) if any(row.needs_evictor for row in rows) else ""
    source = describe_world(origin_of(options.source), world)
    return to_table(
        rows,
        now=now,
        limit=options.limit,
        source=source,
        width=columns(),
        is_colored=is_colored(),
        no_evictor=no_evictor,
    )


def _known(team: TeamName, world: World) -> TeamName:
    """Return the name of a team. Raises WorldError if the policy has no such team, and no pod of it waits."""
    if world.policy.team(team) is None and team not in world.waiting.teams():
        teams = ", ".join(each.name for each in world.policy.teams) or "none"
        raise WorldError(f"the policy has no team {team}; teams: {teams}")
    return team
