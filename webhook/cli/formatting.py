"""Formats numbers the same way in all commands."""

from webhook.core.model.amount import Units, gpus_text
from webhook.core.model.text import plural, plural_gpus

__all__ = ["age", "column_gpus", "plural", "plural_gpus", "span"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def age(seconds: float) -> str:
    """Return an age in the largest unit that is at least one."""
    for size, noun in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            return plural(int(seconds // size), noun)
    return plural(int(seconds), "second")


def span(seconds: float) -> str:
    """Return a length of time for a column, in the unit in which it is a number of some size."""
    if seconds < 2 * _HOUR:
        return f"{max(1, round(seconds / _MINUTE))}m"
    return f"{round(seconds / _HOUR)}h" if seconds < 2 * _DAY else f"{round(seconds / _DAY)}d"


def column_gpus(units: Units) -> str:
    """Return GPUs for a column of numbers: rounded values have a tilde."""
    return gpus_text(units).replace("about ", "~").replace("less than ", "<")
