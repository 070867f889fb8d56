"""The line as a table for terminals."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from webhook.cli.formatting import plural, plural_gpus
from webhook.cli.grid import Column, Grid, Kind
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.core.explain.queue_rows import QueueRow
from webhook.core.model.amount import exact_units
from webhook.core.model.text import agreeing
from webhook.page.views.waiting_row import COLUMNS, WaitingReport, is_scored, short, waiting_report
from webhook.page.views.waiting_row import Column as LineColumn

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
