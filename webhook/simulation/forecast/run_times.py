"""How long pods run: learned from those that ended and those that run, drawn for those that run or wait.

For each age the share of pods that ended at it is estimated among those that were seen to reach it (hazard.py), so a
pod that runs still counts for what it has run, and one that has run for long is drawn longer. Pods are drawn like
earlier ones of their user, team and size; where too few of these ended, like those of a larger group, in which no team
counts for more pods than the others on average (learned_runs.py). What a user states of a pod goes before, as far as
it held so far (statements.py).
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from random import Random
from typing import Final, NamedTuple

from webhook.core.explain.likely_start import Run
from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName, User
from webhook.core.model.run_time import MAX_SECONDS, NO_RUN_TIME, RunTime
from webhook.simulation.forecast.hazard import Curve, Seen
from webhook.simulation.forecast.learned_runs import OF_GROUP, Learned, balanced, latest
from webhook.simulation.forecast.statements import Statements

MIN_ENDED: Final = 5
"""Ended pods without which nothing is known of run times."""

STATED_FASTER: Final = 0.25
STATED_LEFT: Final = 0.5
"""How far, as exponents, stated times follow a pace below 1, and one above 1 where the pod runs already: they say what
pods of one kind or week have in common. Of pods that wait they follow a pace above 1 as others do, since pods that come
later and go first delay a start as much."""


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
        self.statements = Statements(known, now=now)
        self._all = _curve(known, now=now)
        groups: dict[Hashable, list[Learned]] = {}
        for each in known:
            run = each.run
            for group in _groups(Likeness(run.team, run.gpus, run.user)):
                groups.setdefault(group, []).append(each)
        self._curves = {
            group: _curve(found, now=now)
            for group, found in groups.items()
            if sum(bool(each.run.ended) for each in found) >= OF_GROUP
        }

    @property
    def is_known(self) -> bool:
        """Whether enough pods have ended."""
        return self.ended >= MIN_ENDED

    def says(self, likeness: Likeness, run_time: RunTime) -> bool:
        """Whether what a user said of a new pod is believed."""
        stated = run_time.stated and self.statements.record(likeness.team, likeness.user).is_believed
        return bool(stated or self.statements.deadline(likeness.team, likeness.user, run_time, age=0))

    def left(
        self,
        likeness: Likeness,
        *,
        age: int,
        dice: Random,
        pace: float = 1.0,
        run_time: RunTime = NO_RUN_TIME,
        is_fastest: bool = False,
    ) -> int:
        """Return for how many seconds a pod runs on that has run for `age` seconds; at least one.

        Pods without GPUs run for good where none of them ended: they are not a team's work, but the cluster's own. So
        do pods of which nothing is known, unless this is the draw of the shortest times.
        """
        team, user = likeness.team, likeness.user
        deadline = self.statements.deadline(team, user, run_time, age=age)
        stated = self.statements.left(team, user, run_time.stated, age=age, dice=dice)
        if stated is not None:
            slower = STATED_LEFT if age else 1.0
            found = math.pow(pace, slower if pace > 1 else STATED_FASTER) * stated
        elif self.is_known:
            curve = next((self._curves[group] for group in _groups(likeness) if group in self._curves), self._all)
            found = pace * (MAX_SECONDS if curve is self._all and not likeness.gpus else curve.left(age, dice))
        else:
            found = 1 if is_fastest and likeness.gpus else MAX_SECONDS
        return max(1, min(deadline or MAX_SECONDS, round(found)))

    def scaled(self, pace: float, dice: Random, *, is_fastest: bool = False) -> "DrawnTimes":
        """Return times that are all longer or shorter than those of earlier pods."""
        return DrawnTimes(self, pace, dice, is_fastest=is_fastest)


class DrawnTimes:
    """Draws the times of one sample. Times longer than `MAX_SECONDS` are cut."""

    def __init__(self, run_times: RunTimes, pace: float, dice: Random, *, is_fastest: bool) -> None:
        self._run_times = run_times
        self._pace = pace
        self._dice = dice
        self._is_fastest = is_fastest

    def left(self, likeness: Likeness, age: int, run_time: RunTime = NO_RUN_TIME) -> int:
        """Return for how many seconds a pod runs on that has run for `age` seconds; at least one."""
        return self._run_times.left(
            likeness, age=age, dice=self._dice, pace=self._pace, run_time=run_time, is_fastest=self._is_fastest
        )


def _groups(likeness: Likeness) -> Iterator[Hashable]:
    """Yield the groups of a pod, the smallest first."""
    team, gpus, user = likeness
    if user is not None:
        yield team, gpus, user
    yield team, gpus
    yield gpus
    yield team


def _curve(learned: list[Learned], *, now: int) -> Curve:
    """Return the run times of a group."""
    return Curve(
        Seen(
            max(0, (each.run.ended or now) - each.run.started),
            bool(each.run.ended),
            max(0, each.since - each.run.started - 1),
        )
        for each in balanced(learned)
    )
