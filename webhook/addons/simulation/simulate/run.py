"""Runs `fairgate simulate`: the runs, a page of results, files.

The report of `fairgate simulate`: one HTML page with plots and tables. It loads no other file, and has no script.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from io import StringIO
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from webhook import __version__
from webhook.addons.simulation.simulate.command import Options
from webhook.addons.simulation.simulate.inputs import NamedPolicy, TraceInput, Worlds, read_policies, read_trace_input
from webhook.addons.simulation.simulate.plots import SERIES, Plot, bar_plot, curves_of, line_plot
from webhook.addons.simulation.simulate.results import (
    COLUMNS,
    GroupReport,
    PolicyReport,
    PurchaseReport,
    SimulationReport,
    group_cells,
    nodes_text,
    percent_cell,
    policy_report,
    purchase_report,
    purchase_text,
    to_table,
    unstarted_texts,
)
from webhook.addons.simulation.simulate.rounds import Advance, PolicyResult, Rounds
from webhook.addons.simulation.summary import Interval
from webhook.addons.simulation.traces.load import shares_of
from webhook.cli.options import Layout, columns, is_colored, shows_progress
from webhook.cli.output import make_folder, to_json, wait_text, write_file
from webhook.cli.world_source import WorldError, origin_of
from webhook.core.model.amounts import plural, printable, span

_HOUR: Final = 3600
_DARK: Final = ("#56a8e0", "#f0883e", "#3fc79a", "#e39bc4", "#f0b429", "#8fd0f5")
_CSS: Final = f"""
:root {{ --text: #1f2328; --back: #fff; --grid: #d8dee4; {"".join(f"--line-{n}: {c};" for n, c in enumerate(SERIES))} }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e6edf3; --back: #0d1117; --grid: #30363d;
{"".join(f"--line-{n}: {c};" for n, c in enumerate(_DARK))} }} }}
body {{ color: var(--text); background: var(--back); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
max-width: 72rem; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }}
p, dd {{ overflow-wrap: anywhere; }} dt {{ font-weight: bold; }} dd {{ margin: 0 0 .4rem; }}
.plots {{ display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }}
figure {{ margin: 0; min-width: 0; }} svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; margin: .5rem 0; }}
.wide {{ overflow-x: auto; }}
td, th {{ border-bottom: 1px solid var(--grid); padding: .2rem .6rem; text-align: right; white-space: nowrap; }}
td:first-child, th:first-child {{ text-align: left; position: sticky; left: 0; background: var(--back); }}
@media (max-width: 40rem) {{ body {{ margin: 1rem auto; }} }}
thead th {{ white-space: normal; vertical-align: bottom; }}
summary {{ cursor: pointer; }}
"""


def plots_of(report: SimulationReport) -> list[Plot]:
    """Return all plots of a report."""
    policies = report.policies
    teams = list(dict.fromkeys(group.group for each in policies for group in each.teams))
    sizes = list(dict.fromkeys(group.group for each in policies for group in each.sizes))
    return [
        _waits("waits-by-team", "Wait of 90 % of the jobs at most, in hours, by team", teams, policies, is_team=True),
        _waits("waits-by-size", "Wait of 90 % of the jobs at most, in hours, by GPUs", sizes, policies, is_team=False),
        line_plot(
            "gpus-in-use", "GPUs in use", curves_of(policies, lambda each: each.guaranteed_gpus + each.preemptible_gpus)
        ),
        line_plot("gpus-preemptible", "GPUs preemptible", curves_of(policies, lambda each: each.preemptible_gpus)),
        line_plot(
            "gpus-waiting", "GPUs that waiting pods ask for", curves_of(policies, lambda each: each.waiting_gpus)
        ),
        line_plot(
            "fragmentation",
            "Free GPUs that are useless to future pods, in percent",
            curves_of(policies, lambda each: 100 * each.fragmented),
        ),
        line_plot(
            "largest-pod", "GPUs of the largest pod that fits", curves_of(policies, lambda each: each.largest_pod)
        ),
    ]


def to_html(report: SimulationReport, *, source: str, made: str) -> str:
    """Return the page; `source` says what was simulated, `made` when."""
    parts = [
        "<h1>Simulation</h1>",
        f"<p>{_escaped(source)}</p>",
        *(f"<p>{_escaped(note)}</p>" for note in report.notes),
        _facts(report, made),
        "<h2>Policies</h2>",
        _side_by_side(report.policies),
        *_confidence(report),
        *(part for each in report.purchases for part in _purchase(each)),
        "<h2>Plots</h2>",
        f'<div class="plots">{"".join(map(_figure, plots_of(report)))}</div>',
        *(part for each in report.policies for part in _groups(each)),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{_CSS}</style>'
    title = "<title>Fairgate: simulation</title>"
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}{title}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def _waits(name: str, title: str, groups: list[str], policies: Sequence[PolicyReport], *, is_team: bool) -> Plot:
    series = []
    for each in policies:
        known = {group.group: group for group in (each.teams if is_team else each.sizes)}
        series.append((each.policy, [_hours(known.get(group)) for group in groups]))
    return bar_plot(name, title, groups, series)


def _hours(group: GroupReport | None) -> float | None:
    if group is None:
        return 0.0
    return None if group.wait_p90 is None else group.wait_p90.mean / _HOUR


def _side_by_side(policies: Sequence[PolicyReport]) -> str:
    rows = (
        (each.policy, percent_cell(each.allocated), percent_cell(each.fragmented), *group_cells(each.total))
        for each in policies
    )
    return _table("Policies", ("policy", "GPUs in use", "fragmented", *COLUMNS), rows)


def _facts(report: SimulationReport, made: str) -> str:
    """Return when, with what and of which policies the report was made."""
    policies = "<br>".join(_escaped(f"{each.policy}: {each.hash}") for each in report.policies)
    facts = (("Made", _escaped(made)), ("Fairgate", _escaped(report.version)), ("Policies", policies))
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in facts)}</dl>"


def _confidence(report: SimulationReport) -> Iterable[str]:
    """Yield how many rounds there were, and how far apart."""
    yield "<h2>Confidence</h2>"
    if report.rounds == 1:
        yield (
            f"<p>One round, of seed {report.seed}: how far the numbers of another load like it are off is not known. "
            "With --load, --rounds simulates several.</p>"
        )
        return
    yield (
        f"<p>{report.rounds} rounds, of the seeds {report.seed} to {report.seed + report.rounds - 1}. Numbers are "
        "means; ± is how far the true ones may be off, for 95 % confidence. The rounds were this far apart:</p>"
    )
    rows = []
    for each in report.policies:
        total = each.total
        waits = (_apart(found, wait_text) for found in (total.wait_p50, total.wait_p90, total.wait_p99))
        parts = (_apart(found, "{:.1%}".format) for found in (each.allocated, each.fragmented))
        rows.append((each.policy, *waits, *parts, _apart(total.evictions, "{:,.0f}".format)))
    yield _table("Confidence", ("policy", "wait p50", "p90", "p99", "GPUs in use", "fragmented", "evictions"), rows)


def _apart(found: Interval | None, shown: Callable[[float], str]) -> str:
    if found is None or found.lowest is None or found.highest is None:
        return "-"
    return f"{shown(found.lowest)} to {shown(found.highest)}"


def _groups(policy: PolicyReport) -> Iterable[str]:
    yield f"<h2>{_escaped(policy.policy)}</h2>"
    rows = [(f"team {each.group}", *group_cells(each)) for each in policy.teams]
    rows += [(f"GPUs {each.group}", *group_cells(each)) for each in policy.sizes]
    yield _table(policy.policy, ("jobs of", *COLUMNS), rows)
    yield f"<p>{_escaped(nodes_text(policy))}</p>"
    yield from (f"<p>{_escaped(text)}</p>" for text in unstarted_texts(policy))


def _purchase(found: PurchaseReport) -> Iterable[str]:
    yield f"<h2>How many to buy</h2><p>{_escaped(purchase_text(found))}</p>"
    rows = ((f"{nodes:,}", "never" if wait is None else wait_text(wait)) for nodes, wait in found.tried.items())
    yield _table(f"Nodes for {found.policy}", ("nodes bought", "wait"), rows)


def _figure(plot: Plot) -> str:
    table = _table(plot.title, plot.head, plot.rows)
    return f"<figure>{plot.svg}<details><summary>The same as a table</summary>{table}</details></figure>"


def _table(label: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    columns = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in head)
    lines = (
        f'<tr><th scope="row">{_escaped(row[0])}</th>{"".join(f"<td>{_escaped(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    table = f"<table><thead><tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="Table: {_escaped(label)}">{table}</div>'


def _escaped(text: str) -> str:
    return escape(printable(text))


# Writes results as files: tables and samples as CSV, plots as SVG, everything as one HTML page.


def write_outputs(
    report: SimulationReport, *, page: Path | None, folder: Path | None, source: str, made: str
) -> list[Path]:
    """Write the files that were asked for, and return them. Raises UnwrittenError."""
    files: dict[Path, str] = {}
    if folder is not None:
        make_folder(folder)
        files |= {folder / name: text for name, text in _tables(report)}
        files |= {folder / f"{plot.name}.svg": plot.svg for plot in plots_of(report)}
    if page is not None:
        files[page] = to_html(report, source=source, made=made)
    for path, text in files.items():
        write_file(path, text)
    return list(files)


def _tables(report: SimulationReport) -> Iterator[tuple[str, str]]:
    """Yield the names of the tables, and what they have."""
    fields = [each.encode_name for each in msgspec.structs.fields(GroupReport)][1:]
    head = ["policy", "kind", "group", *(f"{name}{part}" for name in fields for part in ("", "Margin"))]
    groups = (
        [policy.policy, kind, each.group, *_cells(each)]
        for policy in report.policies
        for kind, found in (("total", [policy.total]), ("team", policy.teams), ("size", policy.sizes))
        for each in found
    )
    yield "groups.csv", _csv(head, groups)
    samples = [
        {"policy": policy.policy, **msgspec.to_builtins(each)} for policy in report.policies for each in policy.samples
    ]
    if samples:
        yield "samples.csv", _csv(list(samples[0]), (list(each.values()) for each in samples))


def _cells(group: GroupReport) -> Iterable[object]:
    for each in msgspec.structs.astuple(group)[1:]:
        is_known = isinstance(each, Interval)
        yield each.mean if is_known else ""
        yield each.margin if is_known and each.margin is not None else ""


def _csv(head: list[str], rows: Iterable[Iterable[object]]) -> str:
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()


# Runs `fairgate simulate`.


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
