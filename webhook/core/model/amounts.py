"""Names, GPU units, limits, durations, texts of amounts.

Amounts of GPU: exact integers, never floats.

The unit is 1/840,000 of a GPU. Thousandths (milli-GPU, what policies use) and every share from a half to an eighth (MIG
compute and memory slices) are then whole numbers: seven `1g` slices are exactly one GPU, not 0.994 or 1.001 of one. 840
is the least common multiple of 1 to 8. Where policy divides a GPU into other parts (`perGpu: 81920`), an amount is a
Fraction of units, which is exact as well.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NewType, TypeVar

ONE_GPU: Final = 840_000
MILLI_GPU: Final = ONE_GPU // 1000
_LARGEST_DENOMINATOR: Final = 16
_LONGEST_AMOUNT: Final = 100
_AMOUNT: Final = re.compile(r"[0-9]+(\.[0-9]+|/[1-9][0-9]*)?")


class Unlimited(Enum):
    """The limit that no amount exceeds."""

    UNLIMITED = "unlimited"


UNLIMITED: Final = Unlimited.UNLIMITED
Units = int | Fraction
"""An amount in GPU units."""
Limit = int | Unlimited
"""A hard cap in GPU units, or UNLIMITED."""


def parse_gpus(text: str | float) -> int:
    """Parse whole GPUs, a decimal ("2.5") or a fraction ("1/7") as GPU units.

    Raises ValueError for negative or non-numeric amounts and for those that are not exact (finer than 1/840,000).
    """
    try:
        exact = Fraction(str(text).strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"expected GPUs such as 8, 2.5 or 1/7, got {text!r}") from None
    if exact < 0:
        raise ValueError(f"a number of GPUs cannot be negative, got {text}")
    units = exact * ONE_GPU
    if units.denominator != 1:
        raise ValueError(f"{text} GPUs cannot be counted exactly; use thousandths or shares from 1/2 to 1/8")
    return int(units)


def parse_amount(text: str) -> Units:
    """Parse the output of `format_gpus`, including parts of a GPU of any size. Raises ValueError for anything else."""
    if len(text) > _LONGEST_AMOUNT or not _AMOUNT.fullmatch(text):
        raise ValueError("not an amount of GPUs")
    return exact_units(Fraction(text) * ONE_GPU)


def exact_units(total: Units) -> Units:
    """Return a whole number of units as an int: sums of ints are fast."""
    return total if isinstance(total, int) or total.denominator != 1 else total.numerator


@lru_cache(maxsize=1024)  # a cluster has a few dozen amounts, and every decision formats one
def format_gpus(units: Units) -> str:
    """Format GPU units exactly: 8, 2.5, 0.125, 3/7."""
    whole, rest = divmod(units, ONE_GPU)
    if not rest:
        return str(whole)
    if rest % MILLI_GPU == 0:
        return f"{whole}.{rest * 1000 // ONE_GPU:03d}".rstrip("0")
    return str(Fraction(units, ONE_GPU))


@lru_cache(maxsize=1024)
def gpu_number(units: Units) -> int | float:
    """Return GPU units as a number for logs and metrics, to a millionth of a GPU; no decision depends on it."""
    whole, rest = divmod(units, ONE_GPU)
    return round(float(units / ONE_GPU), 6) if rest else int(whole)


def gpus_text(units: Units, *, rounded: str = "about ", tiny: str = "less than 0.001") -> str:
    """Format GPU units for messages: exact up to thousandths or a share up to 1/16, else `rounded`, or `tiny`."""
    if (units % MILLI_GPU) == 0 or (units < ONE_GPU and Fraction(units, ONE_GPU).denominator <= _LARGEST_DENOMINATOR):
        return format_gpus(units)
    if units < MILLI_GPU:
        return tiny
    digits = 3 if units < ONE_GPU // 10 else 2
    number = f"{round(float(units / ONE_GPU), digits):g}" if units < 10**4 * ONE_GPU else str(units // ONE_GPU)
    return f"{rounded}{number}"


def format_limit(limit: Limit) -> str:
    """Format a limit: GPUs, or the word unlimited."""
    return limit.value if isinstance(limit, Unlimited) else format_gpus(limit)


def exceeds(amount: Units, limit: Limit) -> bool:
    """Whether the amount is above the limit."""
    return not isinstance(limit, Unlimited) and amount > limit


# How much of a value that is learned from many may come from each of them. Pure.


_Key = TypeVar("_Key", bound=Hashable)

_ALONE: Final = 1


def bounded(counts: Mapping[_Key, int], *, floor: int) -> dict[_Key, int]:
    """Return how much each contributor counts: at most as much as the others on average, or `floor` if that is more.

    So no number of pods gives one of them more than an equal part where the others are known well. One that is alone
    counts in full.
    """
    if len(counts) <= _ALONE:
        return dict(counts)
    total, others = sum(counts.values()), len(counts) - 1
    return {key: min(count, max(floor, (total - count) // others)) for key, count in counts.items()}


def even(counts: Mapping[_Key, int], most: int) -> dict[_Key, int]:
    """Return how many to take of each, `most` together: none is cut while another one keeps more."""
    found = dict.fromkeys(counts, 0)
    left = most
    for before, key in enumerate(sorted(counts, key=counts.__getitem__)):
        found[key] = min(counts[key], left // (len(counts) - before))
        left -= found[key]
    return found


# Sums and members by key that are kept up to date, without the keys that have none.


_K = TypeVar("_K")
_Member = TypeVar("_Member")
_V = TypeVar("_V")
_Number = TypeVar("_Number", int, Units)


def add_to(sums: dict[_K, _Number], key: _K, number: _Number) -> None:
    """Add a number, which may be below 0, to the sum of a key."""
    left = sums.get(key, 0) + number
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)


def drop_member(index: dict[_K, dict[_Member, _V]], key: _K, member: _Member) -> None:
    """Remove a member of a key, which must be there."""
    members = index[key]
    del members[member]
    if not members:
        del index[key]


# Durations as Go writes them, in whole seconds: 30s, 10m, 1h30m. Policies and annotations have the same.


PATTERN: Final = r"([0-9]+(\.[0-9]+)?(h|m|s))+|0"
_MAX_CHARACTERS: Final = 40
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def parse_seconds(text: str) -> int:
    """Return a duration in seconds. Raises ValueError, with what is expected."""
    if len(text) > _MAX_CHARACTERS or not re.fullmatch(PATTERN, text):
        raise ValueError("expected a duration such as 30s, 10m or 1h30m")
    parts = re.findall(r"([0-9.]+)([hms])", text)
    total = sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
    if total.denominator != 1:
        raise ValueError("expected whole seconds")
    return int(total)


# Names that could be swapped by mistake, each with a type of its own.


TeamName = NewType("TeamName", str)
DepartmentName = NewType("DepartmentName", str)
PoolName = NewType("PoolName", str)
NodeName = NewType("NodeName", str)
Namespace = NewType("Namespace", str)
Uid = NewType("Uid", str)
User = NewType("User", str)
ResourceName = NewType("ResourceName", str)
GpuModel = NewType("GpuModel", str)
Labels = NewType("Labels", str)  # packed into one string
GangId = NewType("GangId", str)
"""Pods that need each other: namespace, marker and value."""
WorkloadName = NewType("WorkloadName", str)
"""Equal pods that replace each other: the namespace, the kind and the name of the object that a person scales, and the
role or group of its pods where it has several."""

CPU = ResourceName("cpu")
MEMORY = ResourceName("memory")
PODS = ResourceName("pods")
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource name under which Kubernetes counts the devices of a DeviceClass (KEP-5004)."""
HOST_PORT = "host port "
"""Prefix of a resource of which every node has one, and one pod takes it: `host port 8080 (TCP)`."""
ANY_MODEL = GpuModel("*")
"""The model of a pod that may still end on any model: it counts towards the limit of each. No label has this value."""
UNASSIGNED = TeamName("unassigned")
"""The team of namespaces without a team, under `unknownTeam: preemptible`."""


# Text for people, the same in every output: numbers with nouns, ages, names that cannot break a line.
#
# Users choose the names, owners and annotations of their objects, and a terminal interprets control characters. So
# every text with such a name is passed through `printable`.


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
    """Format a place in the queue: 1st, 2nd, 3rd, 11th."""
    tens, ones = divmod(number % 100, 10)
    suffix = "th" if tens == 1 else {1: "st", 2: "nd", 3: "rd"}.get(ones, "th")
    return f"{number:,}{suffix}"


def place_text(place: int, team: str = "", overall: int | None = None) -> str:
    """Format a place in the line of a pod's team, and among all, in every text alike."""
    of_team, of_all = f" of team {team}" if team else "", "" if overall is None else f", {ordinal(overall)} of all"
    return f"{ordinal(place)} in the queue{of_team}{of_all}"


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
