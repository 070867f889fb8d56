"""How often likely starts came true: past ranges by their width, and whether the pods started inside them."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from webhook.core.explain.likely_start import StartRange

WIDTHS: Final = (600, 3_600, 14_400, 86_400)
"""Ranges of up to so many seconds are scored together; a last class has the wider ones."""

CLASSES: Final = len(WIDTHS) + 1

_MOST: Final = 1_000
"""Starts of a class above which older ones count half as much: a cluster changes."""


class Score(NamedTuple):
    """How many pods started inside their ranges, before them, and after them or not at all."""

    inside: int = 0
    earlier: int = 0
    later: int = 0

    @property
    def total(self) -> int:
        """How many ranges were scored."""
        return self.inside + self.earlier + self.later

    def plus(self, more: "Score") -> "Score":
        """Return the sum of two scores."""
        return Score(self.inside + more.inside, self.earlier + more.earlier, self.later + more.later)


NO_SCORE: Final = Score()


class RangeScores:
    """Scores by class of width."""

    def __init__(self, scores: Mapping[int, Score] | Iterable[tuple[int, Score]] = ()) -> None:
        self.by_class = dict(scores)

    def of(self, found: StartRange) -> Score:
        """Return how ranges of this width came true."""
        return self.by_class.get(_class_of(found), NO_SCORE)

    def note(self, found: StartRange, waited: int, *, slack: int) -> Score:
        """Score a range by how long its pod waited since, seen late by up to `slack` seconds; return what was added."""
        if waited < found.earliest:
            added = Score(earlier=1)
        elif waited - slack > found.latest:
            added = Score(later=1)
        else:
            added = Score(inside=1)
        width = _class_of(found)
        score = self.by_class.get(width, NO_SCORE).plus(added)
        self.by_class[width] = score if score.total <= _MOST else Score(*(count // 2 for count in score))
        return added


def _class_of(found: StartRange) -> int:
    return bisect_left(WIDTHS, found.latest - found.earliest)
