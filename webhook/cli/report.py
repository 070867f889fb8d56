"""Decisions of logs.

Counts the decisions in servers' logs by workload and outcome, in bounded memory.
"""

import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, BinaryIO, Final

import click
import msgspec

from webhook.cli.grid import Column, Grid, Line, number, print_error
from webhook.cli.options import (
    argument,
    columns,
    command,
    is_colored,
    limit_option,
    most_rows,
    of,
    table_or_json_option,
)
from webhook.cli.output import to_json
from webhook.cli.screen import Screen
from webhook.core.model.amounts import plural

MOST_ROWS: Final = 10_000
OTHERS: Final = "others"
"""Name of the row for all further workloads after so many rows."""

_OUTCOMES: Final = {"deny": "refused", "retry": "asked again", "warn": "warned of"}
_ORDER: Final = ("refused", "warned of", "asked again", "preemptible", "guaranteed")


class LogLine(msgspec.Struct):
    """The fields of a decision's log line that are read."""

    event: str = ""
    time: str = ""
    phase: str = ""
    operation: str = ""
    namespace: str = ""
    name: str = ""
    owner: str = ""
    team: str = ""
    tier: str = ""
    gpus: float | str = 0  # text in lines of 0.1.0
    outcome: str = ""
    code: str = ""
    nodes: list[str] | str = ""  # text in lines of 0.1.0
    dry_run: bool = False
    message: str = ""
    enforce: str = "enforce"
    would: str = ""


class Row(msgspec.Struct):
    """Decisions on one workload's pods with the same outcome."""

    outcome: Annotated[str, msgspec.Meta(description="refused, warned of, asked again, preemptible or guaranteed")]
    enforced: Annotated[bool, msgspec.Meta(description="false: the policy was not enforced, this would be the outcome")]
    code: str
    team: str
    namespace: str
    who: str
    decisions: int = 0
    gpus: float = 0
    placed: Annotated[int, msgspec.Meta(description="decisions that chose nodes")] = 0
    first: str = ""
    last: str = ""
    message: Annotated[str, msgspec.Meta(description="of the last one")] = ""


class Report(msgspec.Struct):
    """All rows, refusals first, then by GPUs."""

    first: str
    last: str
    decisions: int
    unread: Annotated[int, msgspec.Meta(description="lines that are no JSON")]
    rows: list[Row]
    read: Annotated[int, msgspec.Meta(description="lines that are JSON")] = 0


def tally(lines: Iterable[bytes]) -> Report:
    """Count the decisions on new pods and workloads in log lines; other lines are skipped."""
    rows: dict[tuple[Any, ...], Row] = {}
    decoder = msgspec.json.Decoder(LogLine)
    report = Report("", "", 0, 0, [])
    for raw in lines:
        if not (line_start := raw.lstrip()[:1]):
            continue
        if line_start != b"{":  # a console line may begin with a number, which is also JSON
            report.unread += 1
            continue
        try:
            line = decoder.decode(raw)
            report.read += 1
        except msgspec.ValidationError:
            report.read += 1
            continue  # another event: in `world loaded`, `nodes` is a number
        except (msgspec.MsgspecError, UnicodeDecodeError):
            report.unread += 1
            continue
        outcome = _outcome(line)
        if outcome is not None:
            _count(line, outcome, rows, report)
    report.rows = sorted(rows.values(), key=lambda row: (_ORDER.index(row.outcome), -row.gpus, row.namespace, row.who))
    return report


def _outcome(line: LogLine) -> str | None:
    """Return the outcome of a decision; None for lines that are skipped.

    An admitted pod has a line of each webhook, a refused pod only of the first.
    """
    if line.event != "decision" or line.operation != "CREATE" or line.dry_run:
        return None
    is_enforced = line.enforce == "enforce"
    verdict = line.outcome if is_enforced else line.would
    if is_enforced and line.phase == "mutate" and verdict != "deny":
        return None
    if verdict == "admit":
        return line.tier if line.tier in _ORDER else None
    return _OUTCOMES.get(verdict)


def _count(line: LogLine, outcome: str, rows: dict[tuple[Any, ...], Row], report: Report) -> None:
    is_enforced, who = line.enforce == "enforce", line.owner or (line.name if "/" in line.name else f"Pod/{line.name}")
    key = (outcome, is_enforced, line.code, line.team, line.namespace, who)
    if key not in rows and len(rows) >= MOST_ROWS:
        key = (outcome, is_enforced, line.code, line.team, "", OTHERS)
    row = rows.setdefault(key, Row(*key, first=line.time))
    row.decisions += 1
    row.gpus = round(row.gpus + _amount(line.gpus), 6)
    row.placed += bool(line.nodes)
    row.first, row.last = min(row.first, line.time), max(row.last, line.time)
    row.message = line.message
    report.decisions += 1
    report.first = min(report.first or line.time, line.time)
    report.last = max(report.last, line.time)


def _amount(gpus: float | str) -> float:
    if not isinstance(gpus, str):
        return gpus
    try:
        return float(Fraction(gpus)) if gpus else 0.0
    except (ValueError, ZeroDivisionError):
        return 0.0


# `fairgate report`: what was refused, or would have been, from the logs of servers.


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
        names = (_shown_outcome(row), row.code, row.team, row.namespace, row.who)
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
        groups.setdefault((_shown_outcome(row), row.team), []).append(row)
    for (outcome, team), members in sorted(groups.items()):
        sums = (sum(row.decisions for row in members), sum(row.gpus for row in members), sum(r.placed for r in members))
        table.add_row(*map(Line, (outcome, team, f"{sums[0]:,}", f"{sums[1]:g}", f"{sums[2]:,}")))
    return table


def _shown_outcome(row: Row) -> str:
    return row.outcome if row.enforced else f"would be {row.outcome}"
