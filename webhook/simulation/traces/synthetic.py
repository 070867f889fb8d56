"""Random loads: pods that come at random and ask, on average, for a given part of a cluster's GPUs.

Arrivals are independent of each other (exponential gaps). Sizes come from a mix, or from the rows of a trace, with
their run times. Other run times are log-normal: most are short, and a few are many times the mean.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.simulation.traces.row import MAX_GPUS, MAX_ROWS, MAX_SECONDS, Row, TraceError

DEFAULT_MIX: Final = "1:50,2:20,4:15,8:15"
SPREAD: Final = 1.0
"""The standard deviation of the logarithm of run times: a tenth of them are more than twice the mean."""

_PARTS: Final = 1000


class Size(NamedTuple):
    """A size of the mix: GPUs of each pod, pods that start together, and how often it comes beside the others."""

    gpus: int
    pods: int
    weight: float


def parse_mix(text: str) -> tuple[Size, ...]:
    """Parse sizes with weights: `1:50,8:20,4x8:5` (the last is four pods of eight GPUs). Raises ValueError."""
    found = []
    for part in text.split(","):
        size, _, weight = part.strip().partition(":")
        pods, _, gpus = size.rpartition("x")
        try:
            each = Size(int(gpus), int(pods or 1), float(weight or 1))
        except ValueError:
            raise ValueError(f"got {part.strip()[:40]!r}; expected GPUS:WEIGHT or PODSxGPUS:WEIGHT") from None
        if not (0 < each.gpus <= MAX_GPUS and 0 < each.pods <= MAX_GPUS and 0 < each.weight < math.inf):
            raise ValueError(f"{part.strip()[:40]!r}: numbers are above 0, those of GPUs at most {MAX_GPUS:,}")
        found.append(each)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Load:
    """What comes: so many GPUs are asked for on average as `part` of the `gpus` there are, for `seconds`.

    Sizes are those of `rows` where there are any, else of `mix`; `run_seconds` is the mean run time of sizes without
    their own.
    """

    part: float
    gpus: float
    seconds: int
    run_seconds: int
    mix: tuple[Size, ...]
    rows: tuple[Row, ...] = ()


def drawn(load: Load, *, seed: int) -> list[Row]:
    """Draw the tasks of a load. Raises TraceError where there would be too many, or where they ask for no GPUs."""
    dice = random.Random(seed)  # noqa: S311 - a load, not a secret
    has_times = any(row.gpus and row.seconds for row in load.rows)
    sizes = [row for row in load.rows if row.gpus and (row.seconds or not has_times)] or _of_mix(load.mix)
    weights = [1.0] * len(sizes) if load.rows else [size.weight for size in load.mix]
    area = _mean([_gpus(row) * (row.seconds if has_times else load.run_seconds) for row in sizes], weights)
    if not area or not load.gpus:
        raise TraceError("the load asks for no GPUs, or the world has none")
    rate = load.part * load.gpus / area
    if rate * load.seconds > MAX_ROWS:
        raise TraceError(f"the load has about {rate * load.seconds:,.0f} tasks; at most {MAX_ROWS:,} are simulated")
    return list(_arrivals(load, sizes, weights, rate, dice, has_times=has_times))


def _of_mix(mix: tuple[Size, ...]) -> list[Row]:
    return [Row(0, "", size.gpus, 0, 0, pods=size.pods) for size in mix]


def _arrivals(
    load: Load, sizes: Sequence[Row], weights: Sequence[float], rate: float, dice: random.Random, *, has_times: bool
) -> Iterator[Row]:
    at, number = 0.0, 0
    while (at := at + dice.expovariate(rate)) < load.seconds:
        number += 1
        row = dice.choices(sizes, weights)[0]
        seconds = row.seconds if has_times else _run_time(load.run_seconds, dice)
        pod = None if row.pod is None else row.pod._replace(gang=None)
        yield row._replace(line=number, name=f"task-{number}", created=int(at), seconds=seconds, gang="", pod=pod)


def _run_time(mean: int, dice: random.Random) -> int:
    return min(MAX_SECONDS, max(1, round(dice.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD))))


def _gpus(row: Row) -> float:
    return row.gpus * row.pods * row.milli / _PARTS


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total else 0.0
