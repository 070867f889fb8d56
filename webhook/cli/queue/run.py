"""Runs `fairgate queue`."""

import time

import click

from webhook.cli.options import columns, is_colored
from webhook.cli.queue.command import Options
from webhook.cli.queue.past import past_of
from webhook.cli.queue.report import report_of
from webhook.cli.queue.table import to_table
from webhook.cli.screen import progress
from webhook.cli.serialization import to_data
from webhook.cli.world_source import (
    WorldError,
    WorldObjects,
    choose_policy,
    describe_world,
    origin_of,
    read_objects,
    world_of,
)
from webhook.core.explain.past import Past
from webhook.core.model.names import TeamName
from webhook.core.world.world import World
from webhook.simulation.forecast.forecast import read_line


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
