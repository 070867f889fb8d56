"""Likely starts: the present is played several times, each time with other run times, and the starts are compared.

The seed and the amounts of work are fixed, so the same world gives the same answer. Only where the time runs out before
all samples were played does the machine make a difference: then there are fewer of them, or no answer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from random import Random
from typing import Final

from webhook.core.explain.likely_start import LikelyStart, Run, Said, StartRange, UnknownStart
from webhook.core.explain.past import Past
from webhook.core.explain.queue_rows import QueueReader
from webhook.core.model.names import Uid
from webhook.core.model.run_time import MAX_SECONDS
from webhook.core.model.text import plural
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.objects import keys
from webhook.simulation.forecast.present import Present
from webhook.simulation.forecast.run_times import MIN_ENDED, RunTimes
from webhook.simulation.forecast.sample import play

SAMPLES: Final = 9
"""Of ten values drawn alike, one lies between the smallest and the largest of the other nine in eight of ten cases."""

MIN_SAMPLES: Final = 5
"""Samples without which there is no range."""

SECONDS: Final = 3.0
"""Processor time after which no further sample is begun."""

MOST_SECONDS: Final = 5.0
"""Processor time after which too few samples are none."""

SLOWEST: Final = 5.0
FASTEST: Final = 1 / 4
"""How much longer and shorter all pods of a sample run than those before: pods of one kind, or of one week, are alike,
and pods that come later and go first delay a start, which is not played. The samples divide this range evenly."""

MOMENTS: Final = 25_000
"""Moments that the engine plays in each sample, divided by what one costs: by pods, nodes and kinds of pods."""

MOST_MOMENTS: Final = 200
LEAST_MOMENTS: Final = 10
"""With fewer than these, a world of its own for each sample costs more than it tells."""

_OF_KIND: Final = 10
"""What a kind of pods that is judged costs, in pods that only wait."""

_DAY: Final = 86_400
_SEED: Final = 19


class Forecast:
    """The likely starts of the pods in line, computed when the first of them is asked for. The world is only read.

    `clock` returns the processor time that was used. No start by an eviction is played where `no_evictor` says why.
    """

    def __init__(
        self, world: World, runs: Iterable[Run], *, now: int, clock: Callable[[], float], no_evictor: str = ""
    ) -> None:
        self._world = world
        self._runs = tuple(runs)
        self._now = now
        self._clock = clock
        self._no_evictor = no_evictor
        self._known: UnknownStart | dict[Uid, LikelyStart] | None = None

    def __call__(self, uid: Uid) -> LikelyStart:
        """Return when a pod is likely to start; implements webhook.core.explain.likely_start.Starts."""
        if self._known is None:
            self._known = self._played()
        if isinstance(self._known, UnknownStart):
            return self._known
        return self._known.get(uid, _NOT_WHOLE)

    @cached_property
    def _run_times(self) -> RunTimes:
        return RunTimes(self._runs, now=self._now)

    def said(self, waiting: WaitingPod) -> Said | None:
        """Return what the user of a waiting pod said of its run; None where they said nothing."""
        seconds = waiting.pod.run_time.stated
        record = self._run_times.statements.record(waiting.team, waiting.user)
        return Said(seconds, record.held, record.ended, record.is_believed) if seconds else None

    def _played(self) -> "UnknownStart | dict[Uid, LikelyStart]":
        """Return what all samples together say."""
        begun = self._clock()
        run_times = self._run_times
        present = Present(self._world, self._runs, now=self._now)
        is_told = any(run_times.says(each.likeness, each.run_time) for each in present.running)
        if not (run_times.is_known or is_told):
            return _not_known(run_times.ended)
        samples: list[dict[Uid, int]] = []
        for number in range(SAMPLES):
            spent = self._clock() - begun
            if spent > SECONDS and number >= MIN_SAMPLES:
                break
            if spent > MOST_SECONDS:
                return UnknownStart("the line is too long to be simulated in time")
            pace = FASTEST * (SLOWEST / FASTEST) ** (_ORDER[number] / (SAMPLES - 1))
            dice = Random(_SEED + number)  # noqa: S311 - run times, not a secret
            drawn = run_times.scaled(pace, dice, is_fastest=not number)
            samples.append(
                play(
                    present,
                    drawn,
                    moments=_moments(present),
                    is_late=lambda: self._clock() - begun > SECONDS,
                    has_evictor=not self._no_evictor,
                )
            )
        whole = present.places.keys() - present.incomplete
        return {uid: self._range([each.get(uid) for each in samples], run_times) for uid in whole}

    def _range(self, starts: Sequence[int | None], run_times: RunTimes) -> LikelyStart:
        """Return the range of the starts of one pod."""
        found = [max(0, at - self._now) for at in starts if at is not None and at - self._now <= MAX_SECONDS]
        if len(found) == len(starts):
            return StartRange(min(found), max(found))
        if not run_times.is_known:
            return _not_known(run_times.ended)
        never = len(starts) - len(found)
        why = f"; {self._no_evictor}, so no borrowed GPUs count" if self._no_evictor else ""
        return UnknownStart(
            f"in {never} of {len(starts)} simulated courses it does not start within {MAX_SECONDS // _DAY} days{why}"
        )


_ORDER: Final = (0, 8, 4, 2, 6, 1, 7, 3, 5)
"""The extremes first: a range of fewer samples is as wide."""

_NOT_WHOLE: Final = UnknownStart("its gang is not complete")


def _moments(present: Present) -> int:
    found = min(MOST_MOMENTS, MOMENTS // max(1, present.size + _OF_KIND * present.kinds))
    return found if found >= LEAST_MOMENTS else 0


def _not_known(ended: int) -> UnknownStart:
    """Return that a start depends on pods of which nothing says how long they run."""
    known = f"only {plural(ended, 'pod')}" if ended else "no pod"
    return UnknownStart(
        f"{known} that ended can be read, and {MIN_ENDED} are needed to tell how long pods run; annotation "
        f"{keys.RUN_TIME} tells it, too"
    )


def read_line(
    world: World, past: Past, *, now: int, clock: Callable[[], float], is_room_known: bool = True
) -> QueueReader:
    """Return a reader of the line with likely starts; `clock` as in Forecast."""
    forecast = Forecast(world, past.runs, now=now, clock=clock, no_evictor=past.no_evictor)
    return QueueReader(world, starts=forecast, past=past, said=forecast.said, is_room_known=is_room_known, now=now)
