"""Formats numbers the same way in all commands."""

from webhook.core.model.text import column_gpus, plural, plural_gpus, span

__all__ = ["age", "column_gpus", "plural", "plural_gpus", "span", "wait_text"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def age(seconds: float) -> str:
    """Return an age in the largest unit that is at least one."""
    for size, noun in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            return plural(int(seconds // size), noun)
    return plural(int(seconds), "second")


def wait_text(seconds: float) -> str:
    """Return a wait for a column."""
    if seconds < 1:
        return "0"
    return f"{round(seconds)}s" if seconds < 2 * _MINUTE else span(seconds)
