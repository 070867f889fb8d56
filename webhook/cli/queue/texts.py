"""What pods wait for, as texts of a bounded length."""

from typing import Final

from webhook.cli.formatting import column_gpus, span
from webhook.core.explain.likely_start import LikelyStart, UnknownStart
from webhook.core.explain.queue_rows import QueueRow
from webhook.core.model.text import printable, shortened

_LONGEST: Final = 200


def holders_text(row: QueueRow) -> str:
    """Return who holds what a pod waits for."""
    return ", ".join(f"{short(each.name)} {column_gpus(each.gpus)}" for each in row.holders)


def start_text(start: LikelyStart) -> str:
    """Return a likely start in words."""
    if isinstance(start, UnknownStart):
        return "unknown"
    if not start.latest:
        return "now"
    latest = span(start.latest)
    earliest = span(start.earliest)
    return f"{earliest} to {latest}" if start.earliest and earliest != latest else f"within {latest}"


def short(text: str) -> str:
    """Return a text that a user or another controller chose, on one line and of a bounded length."""
    return shortened(printable(text), _LONGEST)
