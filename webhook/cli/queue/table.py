"""The line as a table for terminals."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from webhook.cli.formatting import column_gpus, plural, span
from webhook.cli.queue.texts import holders_text, short, start_text
from webhook.cli.screen import Screen, grid
from webhook.cli.terminal import Line
from webhook.core.explain.likely_start import StartRange, UnknownStart
from webhook.core.explain.queue_rows import QueueRow

_REASONS: Final = 3


def to_table(rows: list[QueueRow], *, now: int, limit: int, source: str, width: int, is_colored: bool) -> str:
    """Return the first pods in line as a table of this width, with the world's source below."""
    console = Screen(width=width, is_colored=is_colored)
    if rows:
        table = grid(
            ">place", ">in team", "pod", "team", "user", ">GPUs", ">waits", "waits for", "held by", "likely start"
        )
        for row in rows[:limit]:
            table.add_row(*_cells(row, now))
        console.print(table)
        if len(rows) > limit:
            console.print(Line(f"and {plural(len(rows) - limit, 'more pod')}: --limit, --team or -o json shows them"))
        for line in _start_notes(rows[:limit]):
            console.print(Line(line, style="dim"))
    else:
        console.print("no pod waits in line")
    console.print("", Line(source), sep="\n", soft_wrap=not is_colored)
    return console.text


def _start_notes(rows: list[QueueRow]) -> Iterator[str]:
    """Yield what the likely starts rest on, and why some are unknown, the most frequent reasons first."""
    if any(isinstance(row.start, StartRange) for row in rows):
        yield "likely start: simulated with the run times of earlier pods, not promised"
    reasons = Counter(row.start.reason for row in rows if isinstance(row.start, UnknownStart))
    for reason, count in reasons.most_common(_REASONS):
        yield f"unknown for {plural(count, 'pod')}: {short(reason)}"


def _cells(row: QueueRow, now: int) -> list[Line]:
    waiting, place = row.waiting, row.place
    return [
        Line("-" if place is None else f"{place.overall:,}"),
        Line("-" if place is None else f"{place.of_team:,}"),
        Line(f"{waiting.pod.namespace}/{waiting.pod.name}"),
        Line(waiting.team),
        Line(short(waiting.user or "-")),
        Line(column_gpus(row.gpus)),
        Line(span(max(0, now - waiting.created)) if waiting.created else "-"),
        Line(short(row.cause), style="yellow"),
        Line(holders_text(row) or "-"),
        Line(start_text(row.start)),
    ]
