"""`fairgate report`: what was refused, or would have been, from the logs of servers."""

import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

import click

from webhook.cli.command import argument, command, of
from webhook.cli.formatting import plural
from webhook.cli.grid import Column, Grid, number
from webhook.cli.options import columns, is_colored, limit_option, most_rows, table_or_json_option
from webhook.cli.report.tally import Report, Row, tally
from webhook.cli.screen import Screen
from webhook.cli.serialization import to_json
from webhook.cli.terminal import Line, print_error

_UNREADABLE: Final = 2
_NOT_JSON: Final = (
    "nothing to report: {} read, none is JSON; run fairgate serve with --log-format json (the default), and pass its "
    "lines unchanged, without a prefix"
)


_EXAMPLES: Final = """\b
Examples:
  kubectl logs -n fairgate-system -l app.kubernetes.io/name=fairgate --tail=-1 | fairgate report
  fairgate report server-1.log server-2.log -o json

\b
Exit status: 0 shown, 2 a file cannot be read, or no line is JSON (--log-format console)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    logs: tuple[BinaryIO, ...] = argument(nargs=-1, type=click.File("rb"), metavar="[FILE]...")
    layout: str = of(table_or_json_option)
    limit: int | None = of(limit_option)


@command(Options, epilog=_EXAMPLES)
def report(options: Options) -> None:
    """Summarize what the policy refused, or would have refused if it were enforced.

    Reads the JSON log of `fairgate serve` from files or standard input, and prints a row per team, code and workload,
    with the first and last time and the message that its owner received, or would have received.
    """
    found = tally(itertools.chain.from_iterable(options.logs or (sys.stdin.buffer,)))
    if found.unread and not found.read:
        print_error(_NOT_JSON.format(plural(found.unread, "line")))
        sys.exit(_UNREADABLE)
    text = to_json(found) if options.layout == "json" else _as_text(found, limit=most_rows(options.limit))
    click.echo(text, nl=False)


def _as_text(found: Report, *, limit: int) -> str:
    screen = Screen(width=columns(), is_colored=is_colored())
    refused = [row for row in found.rows if row.outcome not in ("preemptible", "guaranteed")]
    if refused:
        screen.show(_refusals(refused, limit), "")
        screen.show(*(Line(f"{row.namespace}/{row.who}: {row.message}") for row in refused[:limit]))
        screen.show_rest(len(refused) - limit, "row")
        screen.show("")
    admitted = [row for row in found.rows if row not in refused]
    if admitted:
        screen.show(_admissions(admitted), "")
    span = f", {found.first} to {found.last}" if found.decisions else ""
    unread = f"; no JSON in {plural(found.unread, 'line')}" if found.unread else ""
    screen.show(Line(f"{plural(found.decisions, 'decision')}{span}{unread}"))
    return screen.text


def _refusals(rows: list[Row], limit: int) -> Grid:
    """Return the first rows, and the sum of all."""
    columns = (Column("team", goes=4), Column("namespace", goes=5), "who", number("times"), number("gpus", goes=3))
    table = Grid("outcome", "code", *columns, Column("first", goes=1), Column("last", goes=2))
    for row in rows[:limit]:
        names = (_outcome(row), row.code, row.team, row.namespace, row.who)
        table.add_row(*map(Line, (*names, f"{row.decisions:,}", f"{row.gpus:g}", row.first, row.last)))
    if len(rows) > 1:
        sums = f"{sum(row.decisions for row in rows):,}", f"{sum(row.gpus for row in rows):g}"
        table.add_row(*map(Line, ("total", "", "", "", plural(len(rows), "row"), *sums, "", "")))
    return table


def _admissions(rows: Iterable[Row]) -> Grid:
    """Return the admitted pods, summed by outcome and team."""
    table = Grid("outcome", "team", number("pods"), number("gpus"), number("placed"))
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((_outcome(row), row.team), []).append(row)
    for (outcome, team), members in sorted(groups.items()):
        sums = (sum(row.decisions for row in members), sum(row.gpus for row in members), sum(r.placed for r in members))
        table.add_row(*map(Line, (outcome, team, f"{sums[0]:,}", f"{sums[1]:g}", f"{sums[2]:,}")))
    return table


def _outcome(row: Row) -> str:
    return row.outcome if row.enforced else f"would be {row.outcome}"
