"""Figures of a run from what was seen of its pods: pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Change(NamedTuple):
    """At a time, a team has so many GPUs more that wait, and so many more that run."""

    time: float
    team: str
    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class Gap:
    """By how many GPUs the team furthest below its fair part of what ran was below it: at most, and on average."""

    largest: float = 0.0
    mean: float = 0.0


def fair_split(total: float, demands: Mapping[str, int]) -> dict[str, float]:
    """Split GPUs between teams of equal weight: none gets more than it asks for, and the others share what is left."""
    parts: dict[str, float] = {}
    left = total
    for number, (team, demand) in enumerate(sorted(demands.items(), key=lambda item: item[1])):
        parts[team] = min(demand, left / (len(demands) - number))
        left -= parts[team]
    return parts


def fair_gap(changes: Iterable[Change]) -> Gap:
    """Compare what each team ran with its fair part of what ran in all, from change to change.

    By demand, so the teams' order counts and not how fast the system is: what it leaves idle is missing from all.
    """
    waiting: dict[str, int] = defaultdict(int)
    running: dict[str, int] = defaultdict(int)
    largest = area = seconds = 0.0
    ordered = sorted(changes)
    for change, following in itertools.pairwise(ordered):
        waiting[change.team] += change.waiting
        running[change.team] += change.running
        lasted = following.time - change.time
        if lasted > 0:
            demands = {team: waiting[team] + running[team] for team in waiting}
            fair = fair_split(sum(running.values()), demands)
            gap = max(fair[team] - running[team] for team in fair)
            largest = max(largest, gap)
            area += gap * lasted
            seconds += lasted
    return Gap(largest, area / seconds if seconds else 0.0)


def slot_waits(ended: Iterable[float], started: Iterable[float], *, slots: int) -> list[float]:
    """Return how long each slot that came free was unused: the first slots are taken, then each start takes one."""
    later = sorted(started)[slots:]
    return [max(0.0, start - end) for end, start in zip(sorted(ended), later, strict=False)]


def per_second(times: Sequence[float]) -> float:
    """The rate of events between the first and the last."""
    if len(times) < 2 or max(times) == min(times):
        return 0.0
    return (len(times) - 1) / (max(times) - min(times))


def quantile(values: Sequence[float], share: float) -> float | None:
    """The quantile of the values; None of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None
