"""The progress of a build: the current recipe, the time it has taken and the time left. Pure.

How long a recipe takes is known for two cores with cold caches; finished recipes show how much slower or faster this
machine is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.control_plane.versions import Recipe

TRUSTED_SECONDS = 60
"""This much time at the typical speed is assumed as measured in advance: one small recipe shows little."""
OVERDUE = 1.1
"""A recipe that takes longer than expected is taken to need a tenth more than it has taken so far."""


class Progress:
    """A build of some recipes, one after the other, in the seconds of any clock."""

    def __init__(self, recipes: Sequence[Recipe], *, started: float):
        self._recipes = tuple(recipes)
        self._started = started
        self._at = 0
        self._since = started
        self._typical = self._taken = float(TRUSTED_SECONDS)

    def done(self, now: float) -> None:
        """The current recipe is ready, and the next one begins."""
        self._typical += _typical_seconds(self._recipes[self._at])
        self._taken += now - self._since
        self._at, self._since = self._at + 1, now

    def remaining(self, now: float) -> float:
        """About how many seconds the rest takes."""
        current, *others = map(_typical_seconds, self._recipes[self._at :])
        pace, elapsed = self._taken / self._typical, now - self._since
        if elapsed * OVERDUE > current * pace:
            whole = elapsed * OVERDUE
            pace = max(pace, (self._taken + whole) / (self._typical + current))
        else:
            whole = current * pace
        return whole - elapsed + sum(others) * pace

    def describe(self, now: float) -> str:
        """Return the recipe's name, its place in the order, and the times so far and left."""
        recipe = self._recipes[self._at]
        return (
            f"[{self._at + 1}/{len(self._recipes)}] {recipe.name} {recipe.version}: building for"
            f" {in_words(now - self._since)}, {in_words(now - self._started)} in all, about"
            f" {roughly(self.remaining(now))} left"
        )


def in_words(seconds: float) -> str:
    """A duration as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def roughly(seconds: float) -> str:
    """An estimate, no more precise than it can be."""
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(10, round(seconds, -1)):.0f} s"


def _typical_seconds(recipe: Recipe) -> float:
    return recipe.typical_minutes * 60
