"""Runs `fairgate queue`: rows, past waits, tables.

What likely starts are made of besides the world: of the cluster, and of a recorded history.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import click
import msgspec

from webhook.cli.explain.reclaim import Evictor
from webhook.cli.grid import Column, Grid, Kind, Line
from webhook.cli.options import columns, is_colored
from webhook.cli.output import to_data
from webhook.cli.queue.command import Options
from webhook.cli.screen import Screen, progress
from webhook.cli.world_source import (
    Source,
    WorldError,
    WorldObjects,
    choose_policy,
    describe_world,
    origin_of,
    read_objects,
    world_of,
)
from webhook.core.explain.line_places import RangeScores, Run
from webhook.core.explain.line_rows import Past, QueueRow
from webhook.core.model.amounts import (
    ONE_GPU,
    Namespace,
    TeamName,
    Uid,
    User,
    agreeing,
    exact_units,
    format_gpus,
    plural,
    plural_gpus,
)
from webhook.core.model.decision import Deny
from webhook.core.world.world import World
from webhook.history.reader import read_run_times
from webhook.kube.kinds.model import mapping
from webhook.kube.pod.outcomes import to_run
from webhook.kube.pod.pods import stated_run_time
from webhook.page.views.waiting_row import COLUMNS, WaitingReport, is_scored, short, waiting_report
from webhook.page.views.waiting_row import Column as LineColumn
from webhook.server.settings import LiveCluster
from webhook.simulation.forecast.forecast import read_line
from webhook.simulation.trial_pods import read_template

RECORDED: Final = 10_000
"""Pods of a history that are learned from, the latest first."""


def past_of(
    found: WorldObjects,
    world: World,
    source: Source,
    namespaces: Sequence[str],
    *,
    history: Path | None = None,
    evictor: Evictor | None = None,
) -> Past:
    """Return how pods ran: those that were read, in a live cluster some that have ended, those of a history.

    A pod of both counts once. An `evictor` that leads, or of which that is not known, is looked for in the cluster
    otherwise. Raises HistoryError for a history that cannot be read.
    """
    pods: list[Mapping[str, Any]] = [each for each in found.objects if each.get("kind") == "Pod"]
    scores, no_evictor = RangeScores(), ""
    if isinstance(source, LiveCluster):
        from webhook.cli.live_past import read_past  # noqa: PLC0415 - slow to import, and files need none of it

        live = asyncio.run(read_past(source.kubeconfig, namespaces, evictor))
        pods += live.ended
        scores, no_evictor = live.scores, live.no_evictor
    known = {run.uid: run for pod in pods if (run := _run(pod, world)) is not None}
    recorded = () if history is None else _recorded(history)
    runs = [*known.values(), *(run for run in recorded if run.uid not in known)]
    return Past(runs, scores=scores, no_evictor=no_evictor)


def _run(pod: Mapping[str, Any], world: World) -> Run | None:
    """Return a pod's run, with what it asks for where no decision on it says what it was charged."""
    run = to_run(pod)
    if run is None or run.gpus:
        return run
    if (charge := world.charge_of(run.uid)) is not None:
        return run._replace(gpus=exact_units(charge.gpus), user=charge.user)
    namespace = Namespace(str(mapping(pod.get("metadata")).get("namespace") or "default"))
    template = read_template(pod, namespace=namespace, world=world)
    return run if isinstance(template, Deny) else run._replace(gpus=exact_units(template.pod.demand.gpus))


def _recorded(history: Path) -> list[Run]:
    """Return the pods that ended while they were recorded."""
    rows = read_run_times(history, most=RECORDED)
    return [
        Run(
            Uid(row.uid),
            TeamName(row.team),
            int(row.bound),
            int(row.ended),
            round(row.gpus * ONE_GPU),
            User(row.user) if row.user else None,
            stated_run_time(row.annotations, row.deadline),
            int(row.created),
        )
        for row in rows
    ]


# The line as data: the stable format of `-o json` and `-o yaml`.


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


# The line as a table for terminals.


_REASONS: Final = 3
_KINDS: Final = {"waits for": Kind.TEXT, "held by": Kind.LIST, "likely start": Kind.TEXT}
_GOES: Final = {"in team": 1, "user": 2, "held by": 3, "team": 4}
"""The order in which columns are left out on a narrow terminal."""


def to_table(
    rows: list[QueueRow], *, now: int, limit: int, source: str, width: int, is_colored: bool, no_evictor: str = ""
) -> str:
    """Return the first pods in line as a table of this width, with the world's source below."""
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
        why = no_evictor if any(row.needs_evictor for row in rows) else ""
        screen.show(*(Line(line, style="dim") for line in _start_notes(shown, no_evictor=why)))
        gpus = plural_gpus(exact_units(sum(row.gpus for row in rows)))
        ask = agreeing(len(rows), "asks", "ask")
        screen.show(Line(f"total: {plural(len(rows), 'pod')} that {ask} for {gpus}", style="bold"))
    else:
        screen.show("no pod waits in line")
    screen.show("", Line(source))
    return screen.text


def _column(column: LineColumn) -> Column:
    kind = Kind.NUMBER if column.is_number else _KINDS.get(column.heading, Kind.NAME)
    return Column(column.heading, kind, _GOES.get(column.heading, 0))


def _start_notes(rows: list[WaitingReport], *, no_evictor: str) -> Iterator[str]:
    """Yield what the likely starts rest on, and why some are unknown, the most frequent reasons first."""
    if any(row.likely_start is not None for row in rows):
        yield "likely start: simulated with stated run times and those of earlier pods, not promised"
    if any(map(is_scored, rows)):
        yield "(80%): of the earlier ranges this wide in this cluster, so many were right"
    if any(row.likely_start is None and row.earlier_starts is not None for row in rows):
        yield "last 20: how long the last pods of this size in the team waited until they started"
    if no_evictor:
        yield f"{no_evictor}: no likely start counts on borrowed GPUs that are taken back"
    reasons = Counter(row.likely_start_unknown for row in rows if row.likely_start_unknown is not None)
    for reason, count in reasons.most_common(_REASONS):
        yield f"unknown for {plural(count, 'pod')}: {short(reason)}"


# Runs `fairgate queue`.


def run(options: Options) -> None:
    """Show the line."""
    with progress("Reading"):
        policy = choose_policy(options.policy, options.source)
        found = read_objects(options.source, namespaces=options.namespaces)
        world = world_of(found, policy, name=origin_of(options.source).name)
        past = past_of(found, world, options.source, options.namespaces, history=options.history)
        text = _written(options, found, world, past)
    found.coverage.print_note()
    click.echo(text, nl=False)  # rich hides standard output while it shows a status


def _written(options: Options, found: WorldObjects, world: World, past: Past) -> str:
    now = int(time.time())
    team = None if options.team is None else _known(TeamName(options.team), world)
    reader = read_line(world, past, now=now, clock=time.process_time, is_room_known=found.coverage.is_room_known)
    rows = reader.rows(team)
    if options.layout.is_data:
        return to_data(report_of(rows, found.coverage.notes()), options.layout)
    source = describe_world(origin_of(options.source), world)
    return to_table(
        rows,
        now=now,
        limit=options.limit,
        source=source,
        width=columns(),
        is_colored=is_colored(),
        no_evictor=past.no_evictor,
    )


def _known(team: TeamName, world: World) -> TeamName:
    """Return the name of a team. Raises WorldError if the policy has no such team, and no pod of it waits."""
    if world.policy.team(team) is None and team not in world.waiting.teams():
        teams = ", ".join(each.name for each in world.policy.teams) or "none"
        raise WorldError(f"the policy has no team {team}; teams: {teams}")
    return team
