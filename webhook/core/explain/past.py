"""What likely starts are made of besides the world: earlier runs and waits, and how earlier forecasts came true."""

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from webhook.core.explain.earlier_starts import EarlierWaits
from webhook.core.explain.likely_start import Run
from webhook.core.explain.range_scores import RangeScores


class Past:
    """Earlier runs, `scores` of earlier ranges, and why nothing is taken back from borrowing pods, "" where it is."""

    def __init__(self, runs: Iterable[Run] = (), *, scores: RangeScores | None = None, no_evictor: str = "") -> None:
        self.runs = tuple(runs)
        self.scores = RangeScores() if scores is None else scores
        self.no_evictor = no_evictor

    @cached_property
    def waits(self) -> EarlierWaits:
        """How long pods waited."""
        return EarlierWaits(self.runs)


NO_PAST: Final = Past()
