"""Numbers in words, the same for all commands."""

from webhook.core.model.amount import Units, gpus_text
from webhook.core.model.text import plural, plural_gpus

__all__ = ["age", "column_gpus", "plural", "plural_gpus"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def age(seconds: float) -> str:
    """Write how old something is, in the largest unit that it fills."""
    for size, noun in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            return plural(int(seconds // size), noun)
    return plural(int(seconds), "second")


def column_gpus(units: Units) -> str:
    """Write GPUs for a column of numbers: what is rounded has a tilde."""
    return gpus_text(units).replace("about ", "~").replace("less than ", "<")
