"""How long the last pods of a team and size waited: what is known where no start can be forecast."""

from collections.abc import Iterable
from heapq import nlargest
from typing import Final, NamedTuple

from webhook.core.explain.likely_start import Run
from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName

LAST: Final = 20
"""Starts that count, the last ones."""


class EarlierStarts(NamedTuple):
    """The last starts of a team's pods of one size: their number, and the shortest and longest wait in seconds."""

    number: int
    shortest: int
    longest: int


class EarlierWaits:
    """The waits of pods that run or ran, from their creation to their start."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: dict[tuple[TeamName, Units], list[Run]] = {}
        for run in runs:
            if 0 < run.created <= run.started:
                self._runs.setdefault((run.team, run.gpus), []).append(run)

    def of(self, team: TeamName, gpus: Units) -> EarlierStarts | None:
        """Return the last starts of a team's pods with so many GPUs; None where none is known."""
        last = nlargest(LAST, self._runs.get((team, gpus), ()), key=lambda run: (run.started, run.uid))
        waits = [run.started - run.created for run in last]
        return EarlierStarts(len(waits), min(waits), max(waits)) if waits else None
