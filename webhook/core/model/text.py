"""Text for people, the same in every output: numbers with nouns, ages, names that cannot break a line.

Users choose the names, owners and annotations of their objects, and a terminal interprets control characters. So every
text with such a name is passed through `printable`.
"""

import re
from collections.abc import Callable
from typing import Final

from webhook.core.model.amount import Units, format_gpus, gpus_text
from webhook.core.model.names import CPU, MEMORY, ResourceName

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STEP_MINUTES: Final = 10
_HOURS: Final = 48
_NUMBERS: Final = re.compile(r"([0-9]{1,18})")
_ODD: Final = re.compile(r"[^\n -~]")  # what may not be printable
_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def plural(count: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def agreeing(count: float, one: str, more: str) -> str:
    """Return the form of a word that goes with a number."""
    return one if count == 1 else more


def ordinal(number: int) -> str:
    """Format a place in line: 1st, 2nd, 3rd, 11th."""
    tens, ones = divmod(number % 100, 10)
    suffix = "th" if tens == 1 else {1: "st", 2: "nd", 3: "rd"}.get(ones, "th")
    return f"{number:,}{suffix}"


def place_text(place: int, team: str = "", overall: int | None = None) -> str:
    """Format a place in the line of a pod's team, and among all, in every text alike."""
    of_team, of_all = f" of team {team}" if team else "", "" if overall is None else f", {ordinal(overall)} of all"
    return f"{ordinal(place)} in line{of_team}{of_all}"


def plural_gpus(units: Units) -> str:
    """Format an amount of GPUs."""
    return f"{gpus_text(units)} GPU{'s' * (format_gpus(units) != '1')}"


def column_gpus(units: Units) -> str:
    """Format GPUs for a column of numbers: rounded values have a tilde."""
    return gpus_text(units, rounded="~", tiny="<0.001")


def span(seconds: float) -> str:
    """Format a length of time, in the unit in which it is a number of some size; every age and wait is written so."""
    if seconds < 2 * _MINUTE:
        return f"{round(seconds)}s"
    if seconds < 2 * _HOUR:
        return f"{round(seconds / _MINUTE)}m"
    return f"{round(seconds / _HOUR)}h" if seconds < 2 * _DAY else f"{round(seconds / _DAY)}d"


def printable(text: str) -> str:
    """Escape control characters, ANSI sequences and text direction marks, as Python's literals do."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else _escaped(each) for each in text])


def escaped(text: str, *, escape: Callable[[str], str]) -> str:
    """Escape in a text what is not printable, such as text direction marks, but for its line breaks."""
    return _ODD.sub(lambda found: found[0] if found[0].isprintable() else escape(found[0]), text)


def printable_lines(text: str) -> str:
    """Escape a text of several lines, whose line breaks stay."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str, longest: int) -> str:
    """Cut a text to a number of characters, the ellipsis included."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def duration(seconds: int) -> str:
    """Format a duration as policy files write it, such as 1h30m."""
    hours, rest = divmod(seconds, _HOUR)
    minutes, left = divmod(rest, _MINUTE)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def coarse_age(seconds: int) -> str:
    """Format an age that stays the same for a while; "" below ten minutes, the time in which most waits end.

    A text that is repeated every minute must not change with it.
    """
    minutes = seconds // _MINUTE // _STEP_MINUTES * _STEP_MINUTES
    if seconds < _HOUR:
        return f"{minutes}m" if minutes else ""
    return f"{seconds // _HOUR}h" if seconds < _HOURS * _HOUR else f"{seconds // _DAY}d"


def amount_text(resource: ResourceName, amount: int, *, beside: int | None = None) -> str:
    """Format an amount as in a manifest: cores of cpu, binary units of bytes, a number of everything else.

    Bytes are rounded by at most a thousandth, and not at all where another amount `beside` it would read the same.
    """
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in (MEMORY, "ephemeral-storage") or resource.startswith("hugepages-") or resource.endswith(" memory"):
        rounded = _bytes(amount, thousandths=1)
        is_same = beside is not None and beside != amount and _bytes(beside, thousandths=1) == rounded
        return _bytes(amount, thousandths=0) if is_same else rounded
    return str(amount)


def _bytes(amount: int, *, thousandths: int) -> str:
    """Return bytes in the largest unit of which it is some, to one decimal that is off by no more than so much."""
    for unit, size in _UNITS:
        tenths = (20 * amount + size) // (2 * size)
        if amount >= size and abs(tenths * size - 10 * amount) * 100 <= amount * thousandths:
            return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{unit}"
    return str(amount)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", errors="backslashreplace").decode("ascii")


def natural_sort_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders gpu-2 before gpu-10."""
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in _NUMBERS.split(name))
