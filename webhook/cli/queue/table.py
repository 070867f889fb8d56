"""The line as a table for terminals."""

from webhook.cli.formatting import column_gpus, plural, span
from webhook.cli.queue.texts import holders_text, short, start_text
from webhook.cli.screen import Screen, grid
from webhook.cli.terminal import Line
from webhook.core.explain.queue_rows import QueueRow


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
        if any(row.start is not None for row in rows[:limit]):
            console.print(Line("likely start: estimated from how long pods ran so far, not promised", style="dim"))
    else:
        console.print("no pod waits in line")
    console.print("", Line(source), sep="\n", soft_wrap=not is_colored)
    return console.text


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
