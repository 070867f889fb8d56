"""How long jobs waited, by their size: pods, and gangs as one. The history, metrics and simulations read this."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

PERCENTILES: Final = (50, 90, 99)

_SIZES: Final = ((0, "none"), (0.999, "part of 1"), (1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"), (64, "9-64"))
_LARGEST: Final = "65 and more"
SIZES: Final = (*(name for _, name in _SIZES), _LARGEST)
"""The classes of sizes, by the GPUs of the whole job, the smallest first."""

BOUNDS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, math.inf)
"""Upper bounds in seconds of the groups into which waits are counted where single ones are not kept."""


class Start(NamedTuple):
    """A job that started: the class of its size, and how many seconds after its creation."""

    size: str
    wait: float


class WaitPercentiles(NamedTuple):
    """How many jobs, and the seconds that 50, 90 and 99 percent of them did not exceed.

    Each is the smallest wait for which that is so; None where it has no end or is beyond the last group, or without
    jobs.
    """

    jobs: int
    p50: float | None
    p90: float | None
    p99: float | None


def size_of(gpus: float) -> str:
    """Return the class of a job's size, from its GPUs."""
    return next((name for most, name in _SIZES if gpus <= most), _LARGEST)


def bound_of(wait: float) -> float:
    """Return the upper bound of the group that a wait is counted in."""
    return next(bound for bound in BOUNDS if wait <= bound)


def percentiles(waits: Iterable[float]) -> WaitPercentiles:
    """Return the percentiles of waits; infinity is one that has not ended."""
    return percentiles_of(Counter(waits))


def percentiles_of(counts: Mapping[float, int]) -> WaitPercentiles:
    """Return the same of counted waits, such as those of groups, each as the upper bound of its group."""
    waits = sorted(counts)
    until = list(accumulate(counts[wait] for wait in waits))
    total = until[-1] if until else 0
    ranks = [max(1, math.ceil(total * percent / 100)) for percent in PERCENTILES]
    found = [waits[bisect_left(until, rank)] for rank in ranks] if total else [math.inf] * len(ranks)
    return WaitPercentiles(total, *(None if math.isinf(wait) else wait for wait in found))
