"""Runs `fairgate simulate`."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from webhook import __version__
from webhook.cli.formatting import plural, span
from webhook.cli.options import Layout, columns, is_colored, shows_progress
from webhook.cli.serialization import to_json
from webhook.cli.simulate.history import TraceInput
from webhook.cli.simulate.inputs import NamedPolicy, Worlds, read_policies, read_trace_input
from webhook.cli.simulate.options import Options
from webhook.cli.simulate.outputs import write_outputs
from webhook.cli.simulate.results import SimulationReport, policy_report, purchase_report
from webhook.cli.simulate.rounds import Advance, PolicyResult, Rounds
from webhook.cli.simulate.table import to_table
from webhook.cli.world_source import WorldError, origin_of
from webhook.core.model.text import printable
from webhook.simulation.traces.tasks import shares_of

_DAY: Final = 86_400


def run(options: Options) -> None:
    """Simulate, and write the outputs."""
    report = _simulated(options)
    source = _source_text(options, report)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    written = write_outputs(report, page=options.report, folder=options.csv, source=source, made=made)
    is_data = options.layout is Layout.JSON
    if is_data:
        click.echo(to_json(report), nl=False)
    else:
        click.echo(to_table(report, source=source, width=columns(), is_colored=is_colored()), nl=False)
    for path in written:
        click.echo(f"written: {printable(str(path))}", err=is_data)


def _simulated(options: Options) -> SimulationReport:
    policies = read_policies(options)
    trace = read_trace_input(options, policies)
    worlds = Worlds(options, trace)
    for named in policies:
        _check_team(options, named)
    with _progress(len(policies) * options.rounds, is_open_ended=options.buy is not None) as advance:
        rounds = Rounds(options, worlds, trace.rows, shares=shares_of(policies[0].policy), advance=advance)
        results = [PolicyResult(named.name, named.policy.hash, rounds.run(named)) for named in policies]
        purchases = []
        if options.buy is not None:
            purchases = [purchase_report(named.name, rounds.purchase(named, options.buy)) for named in policies]
    found = list(map(policy_report, results))
    notes = _notes(options, worlds, trace)
    return SimulationReport(__version__, options.rounds, options.seed, found, purchases, notes)


def _check_team(options: Options, named: NamedPolicy) -> None:
    team = None if options.buy is None else options.of_team
    teams = [each.name for each in named.policy.teams]
    if team is not None and team not in teams:
        raise WorldError(f"policy {named.name} has no team {team}; teams: {', '.join(teams) or 'none'}")


def _notes(options: Options, worlds: Worlds, trace: TraceInput) -> list[str]:
    notes = [f"left out of the trace: {why}: {count:,}" for why, count in sorted(trace.left_out.items())]
    if worlds.rounds_up:
        notes.append("tasks that ask for a part of a GPU got a whole one: the world's nodes have whole GPUs")
    if options.load is None and not any(row.team or row.namespace for row in trace.rows):
        notes.append("the trace names no teams: tasks were dealt to them by guaranteed share")
    return notes


def _source_text(options: Options, report: SimulationReport) -> str:
    first = report.policies[0]
    world = f"{plural(first.nodes, 'node')} with {first.gpus:,g} GPUs of {origin_of(options.source).name}"
    load = str(options.trace) if options.load is None else f"load {options.load:g}"
    days = first.seconds / _DAY
    length = f"{days:,.1f} days" if days >= 1 else span(first.seconds)
    return f"{world}; {load}, {length}, {plural(report.rounds, 'round')} from seed {report.seed}"


@contextmanager
def _progress(rounds: int, *, is_open_ended: bool) -> Iterator[Advance]:
    """Show how far the rounds are, on a terminal's standard error."""
    parts = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*parts, console=Console(stderr=True), transient=True, disable=not shows_progress()) as bar:
        job = bar.add_task("Simulating", total=None if is_open_ended else rounds)
        yield lambda part: bar.update(job, advance=part)
