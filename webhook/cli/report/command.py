"""`fairgate report`: what was refused, or would have been, from the logs of servers."""

import itertools
import sys
from collections.abc import Iterable
from typing import BinaryIO, Final

import click
from rich.table import Table

from webhook.cli.formatting import plural
from webhook.cli.options import columns, is_colored
from webhook.cli.report.tally import Report, Row, tally
from webhook.cli.screen import Screen, grid
from webhook.cli.serialization import to_json
from webhook.cli.terminal import Line, print_error

_MAX_ROWS: Final = 50
_UNREADABLE: Final = 2
_NOT_JSON: Final = (
    "nothing to report: {} read, none is JSON; run fairgate serve with --log-format json (the default), and pass its "
    "lines unchanged, without a prefix"
)


@click.command(
    epilog="""\b
Examples:
  kubectl logs -n fairgate-system -l app.kubernetes.io/name=fairgate --tail=-1 | fairgate report
  fairgate report server-1.log server-2.log -o json

\b
Exit status: 0 shown, 2 a file cannot be read, or no line is JSON (--log-format console)."""
)
@click.argument("logs", nargs=-1, type=click.File("rb"), metavar="[FILE]...")
@click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Table for people, JSON for machines; JSON has every row.",
)
def report(logs: tuple[BinaryIO, ...], layout: str) -> None:
    """Summarize what the policy refused, or would have refused if it were enforced.

    Reads the JSON log of `fairgate serve` from files or standard input, and prints a row per team, code and workload,
    with the first and last time and the message that its owner received, or would have received.
    """
    found = tally(itertools.chain.from_iterable(logs or (sys.stdin.buffer,)))
    if found.unread and not found.read:
        print_error(_NOT_JSON.format(plural(found.unread, "line")))
        sys.exit(_UNREADABLE)
    click.echo(to_json(found) if layout == "json" else _as_text(found), nl=False)


def _as_text(found: Report) -> str:
    console = Screen(width=columns(), is_colored=is_colored())
    refused = [row for row in found.rows if row.outcome not in ("preemptible", "guaranteed")]
    if refused:
        console.print(_refusals(refused[:_MAX_ROWS]), "")
    for row in refused[:_MAX_ROWS]:
        console.print(Line(f"{row.namespace}/{row.who}: {row.message}"), soft_wrap=True)
    if len(refused) > _MAX_ROWS:
        console.print(f"… and {plural(len(refused) - _MAX_ROWS, 'row')} more: -o json has all")
    if refused:
        console.print()
    admitted = [row for row in found.rows if row not in refused]
    if admitted:
        console.print(_admissions(admitted), "")
    span = f", {found.first} to {found.last}" if found.decisions else ""
    unread = f"; no JSON in {plural(found.unread, 'line')}" if found.unread else ""
    console.print(Line(f"{plural(found.decisions, 'decision')}{span}{unread}"), soft_wrap=True)
    return console.text


def _refusals(rows: Iterable[Row]) -> Table:
    table = grid("outcome", "code", "team", "namespace", "who", ">times", ">gpus", "first", "last")
    for row in rows:
        sums, span = (f"{row.decisions:,}", f"{row.gpus:g}"), (row.first, row.last)
        table.add_row(*map(Line, (_outcome(row), row.code, row.team, row.namespace, row.who, *sums, *span)))
    return table


def _admissions(rows: Iterable[Row]) -> Table:
    """Return the admitted pods, summed by outcome and team."""
    table = grid("outcome", "team", ">pods", ">gpus", ">placed")
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((_outcome(row), row.team), []).append(row)
    for (outcome, team), members in sorted(groups.items()):
        sums = (sum(row.decisions for row in members), sum(row.gpus for row in members), sum(r.placed for r in members))
        table.add_row(*map(Line, (outcome, team, f"{sums[0]:,}", f"{sums[1]:g}", f"{sums[2]:,}")))
    return table


def _outcome(row: Row) -> str:
    return row.outcome if row.enforced else f"would be {row.outcome}"
