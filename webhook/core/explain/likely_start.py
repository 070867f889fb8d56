"""When a waiting pod is likely to start: a range, by how long pods ran so far. Never a promise.

The pods that hold what it waits for are assumed to run at least as long as a fifth of the earlier ones, and at most as
long as four fifths; one that runs longer, as long again. Where no pods have ended yet, a pod is assumed to run for
another third of its age at least, and for three times its age at most: of all moments at which it might be looked at,
half are such.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName, Uid

MIN_RUNS: Final = 3
"""Ended pods without which only the ages of those that run are used."""

MAX_SECONDS: Final = 90 * 86_400
"""A start that may be further away than this is not known."""

_MIN_SECONDS: Final = 60
"""A range that ends before says nothing: all pods have just started."""


class Run(NamedTuple):
    """A pod that ran, or runs (`ended` is 0): since when and until when, in seconds of Unix time."""

    uid: Uid
    team: TeamName
    started: int
    ended: int = 0


class StartRange(NamedTuple):
    """The earliest and the latest likely start, in seconds from now."""

    earliest: int
    latest: int


class Holding(NamedTuple):
    """GPU units that a pod holds, and for how many seconds; None where that is not known."""

    gpus: Units
    age: int | None


class Outflow:
    """When GPUs come back that are held now. `ended` are the lengths of earlier runs in seconds."""

    def __init__(self, holdings: Iterable[Holding], ended: Iterable[int]) -> None:
        held, lengths = tuple(holdings), sorted(ended)
        is_known = len(lengths) >= MIN_RUNS
        self._lengths = (lengths[len(lengths) // 5], lengths[len(lengths) * 4 // 5]) if is_known else None
        self._held = sum(each.gpus for each in held)
        self._early = _Ends.of((self._least(each.age), each.gpus) for each in held)
        self._late = _Ends.of((self._most(each.age), each.gpus) for each in held)

    def until(self, gpus: Units, *, at_most: Units | None = None) -> StartRange | None:
        """Return when this many GPU units will have come back, or up to `at_most`; None where that is not known."""
        earliest, latest = self._until(gpus, is_late=False), self._until(at_most or gpus, is_late=True)
        if earliest is None or latest is None or not _MIN_SECONDS <= latest <= MAX_SECONDS:
            return None
        return StartRange(min(earliest, latest), latest)

    def _until(self, gpus: Units, *, is_late: bool) -> int | None:
        if self._held <= 0:
            return None
        rounds = max(0, -int(-gpus // self._held) - 1)  # as often as all of it must come back before
        end = (self._late if is_late else self._early).until(gpus - rounds * self._held)
        if end is None or not rounds:
            return end
        return None if self._lengths is None else end + rounds * self._lengths[is_late]

    def _least(self, age: int | None) -> int | None:
        if self._lengths is None:
            return None if age is None else age // 3
        return max(0, self._lengths[0] - (age or 0))

    def _most(self, age: int | None) -> int | None:
        if self._lengths is None:
            return None if age is None else age * 3
        age, longest = age or 0, self._lengths[1]
        return longest - age if age < longest else age


class _Ends(NamedTuple):
    """The ends of runs in order, and the GPU units that have come back with each."""

    seconds: Sequence[int]
    back: Sequence[Units]

    @classmethod
    def of(cls, ends: Iterable[tuple[int | None, Units]]) -> "_Ends":
        ordered = sorted((seconds, gpus) for seconds, gpus in ends if seconds is not None)
        return cls([seconds for seconds, _ in ordered], list(accumulate(gpus for _, gpus in ordered)))

    def until(self, gpus: Units) -> int | None:
        index = bisect_left(self.back, gpus)
        return self.seconds[index] if index < len(self.seconds) else None
