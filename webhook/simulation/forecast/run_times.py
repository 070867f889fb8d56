"""How long pods run: learned from those that ended and those that run, drawn for those that run or wait.

For each age the share of pods that ended at it is estimated among those that were seen to reach it (Nelson and Aalen),
so a pod that runs still counts for what it has run, and one that has run for long is drawn longer. Pods are drawn like
earlier ones of their user, team and size; where too few of these ended, like those of a larger group, in which no team
counts for more pods than the others on average (learned_runs.py).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

from webhook.core.explain.likely_start import MAX_SECONDS, Run
from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName, User
from webhook.simulation.forecast.learned_runs import OF_GROUP, Learned, balanced, latest

MIN_ENDED: Final = 5
"""Ended pods without which nothing is known of run times."""

_NEAR: Final = 0.9
"""A pod that ends like an earlier one runs for at least so much of its time."""


class Likeness(NamedTuple):
    """What pods that run equally long have in common."""

    team: TeamName
    gpus: Units
    user: User | None = None


class RunTimes:
    """Draws how long pods run. `ended` is the number of pods that it was learned from and that ended."""

    def __init__(self, runs: Iterable[Run], *, now: int) -> None:
        known = latest(runs, now=now)
        self.ended = sum(bool(each.run.ended) for each in known)
        self._all = _Curve(balanced(known), now=now)
        groups: dict[Hashable, list[Learned]] = {}
        for each in known:
            run = each.run
            for group in _groups(Likeness(run.team, run.gpus, run.user)):
                groups.setdefault(group, []).append(each)
        self._curves = {
            group: _Curve(balanced(found), now=now)
            for group, found in groups.items()
            if sum(bool(each.run.ended) for each in found) >= OF_GROUP
        }

    @property
    def is_known(self) -> bool:
        """Whether enough pods have ended."""
        return self.ended >= MIN_ENDED

    def left(self, likeness: Likeness, *, age: int, dice: Random) -> int:
        """Return for how many seconds a pod runs on that has run for `age` seconds; at least one.

        Pods without GPUs run for good where none of them ended: they are not a team's work, but the cluster's own.
        """
        curve = next((self._curves[group] for group in _groups(likeness) if group in self._curves), self._all)
        return MAX_SECONDS if curve is self._all and not likeness.gpus else curve.left(age, dice)

    def scaled(self, pace: float, dice: Random) -> "DrawnTimes":
        """Return times that are all longer or shorter than those of earlier pods."""
        return DrawnTimes(self, pace, dice)


class DrawnTimes:
    """Draws the times of one sample. Times longer than `MAX_SECONDS` are cut."""

    def __init__(self, run_times: RunTimes, pace: float, dice: Random) -> None:
        self._run_times = run_times
        self._pace = pace
        self._dice = dice

    def left(self, likeness: Likeness, age: int) -> int:
        """Return for how many seconds a pod runs on that has run for `age` seconds; at least one."""
        found = self._run_times.left(likeness, age=age, dice=self._dice)
        return max(1, min(MAX_SECONDS, round(self._pace * found)))


def _groups(likeness: Likeness) -> Iterator[Hashable]:
    """Yield the groups of a pod, the smallest first."""
    team, gpus, user = likeness
    if user is not None:
        yield team, gpus, user
    yield team, gpus
    yield gpus
    yield team


class _Curve:
    """The hazard summed over ages: how often a pod would have ended by then, if it could end several times."""

    def __init__(self, learned: Sequence[Learned], *, now: int) -> None:
        runs = [each.run for each in learned]
        entries = sorted(max(0, each.since - each.run.started - 1) for each in learned)
        exits = sorted(max(0, (run.ended or now) - run.started) for run in runs)
        counts: dict[int, int] = {}
        for run in runs:
            if run.ended:
                length = max(1, run.ended - run.started)
                counts[length] = counts.get(length, 0) + 1
        self._lengths = sorted(counts)
        at_risk = [bisect_left(entries, length) - bisect_left(exits, length) for length in self._lengths]
        hazards = (_hazard(counts[each], risk) for each, risk in zip(self._lengths, at_risk, strict=True))
        self._sums = list(accumulate(hazards))

    def left(self, age: int, dice: Random) -> int:
        """Return a drawn rest; past the longest run, half of those that remain run as long again."""
        index = bisect_right(self._lengths, age)
        target = (self._sums[index - 1] if index else 0.0) - math.log(1.0 - dice.random())
        found = bisect_left(self._sums, target, lo=index)
        if found < len(self._lengths):
            most = self._lengths[found]
            low = max(age, self._lengths[found - 1] if found else 0, _NEAR * most)
            length = low + dice.random() * (most - low)
        else:
            last = self._sums[-1] if self._sums else 0.0
            base = max(age, self._lengths[-1] if self._lengths else 1)
            length = base * math.exp(min(target - last, 20.0))
        return max(1, min(MAX_SECONDS, round(length) - age))


def _hazard(ended: int, at_risk: int) -> float:
    """Return the hazard of an age at which several ended, as if one had ended just after the other."""
    return sum(1 / (max(at_risk, ended) - before) for before in range(ended))
