"""The distribution of lengths that were seen, some of them not to their end (Nelson and Aalen), and rests drawn of it.

Lengths are whole numbers of any unit: seconds of a run, thousandths of what its user stated.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

from webhook.core.model.run_time import MAX_SECONDS

_NEAR: Final = 0.9
"""A length like an earlier one is at least so much of it."""


class Seen(NamedTuple):
    """A length that was seen from `entered` on; whether it ended there, or goes on."""

    length: int
    has_ended: bool
    entered: int = 0


class Curve:
    """The hazard summed over lengths: how often one would have ended by then, if it could end several times."""

    def __init__(self, seen: Iterable[Seen]) -> None:
        known = [*seen]
        entries = sorted(each.entered for each in known)
        exits = sorted(each.length for each in known)
        counts: dict[int, int] = {}
        for each in known:
            if each.has_ended:
                length = max(1, each.length)
                counts[length] = counts.get(length, 0) + 1
        self._lengths = sorted(counts)
        at_risk = [bisect_left(entries, length) - bisect_left(exits, length) for length in self._lengths]
        hazards = (_hazard(counts[each], risk) for each, risk in zip(self._lengths, at_risk, strict=True))
        self._sums = list(accumulate(hazards))

    def left(self, age: int, dice: Random) -> int:
        """Return a drawn rest; past the longest length, half of those that remain are as long again."""
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
    """Return the hazard of a length at which several ended, as if one had ended just after the other."""
    return sum(1 / (max(at_risk, ended) - before) for before in range(ended))
