"""Numbers in words, the same for all commands."""

from webhook.core.amount import Units, format_gpus

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def plural(count: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def plural_gpus(units: Units) -> str:
    """Write an amount of GPUs."""
    return f"{format_gpus(units)} GPU{'s' * (format_gpus(units) != '1')}"


def age(seconds: float) -> str:
    """Write how old something is, in the largest unit that it fills."""
    for size, noun in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            return plural(int(seconds // size), noun)
    return plural(int(seconds), "second")
