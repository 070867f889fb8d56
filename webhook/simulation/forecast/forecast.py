"""A forecast of starts, by samples.

One sample of a forecast: the line from now on, with run times that were drawn.

The engine plays it for some moments, decision by decision; the coarse line continues. What that does not reach either
follows at the pace of those before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Final

from webhook.core.explain.line_places import LikelyStart, Run, Said, StartRange, UnknownStart, places
from webhook.core.explain.line_rows import Past, QueueReader
from webhook.core.model.amounts import UNASSIGNED, Uid, plural
from webhook.core.model.pod import MAX_SECONDS
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.objects import keys
from webhook.simulation.engine import GANG_LOOKS, Simulation
from webhook.simulation.forecast.coarse_line import CoarseLine, CoarsePod, CoarseRun, Present, as_created
from webhook.simulation.forecast.run_times import MIN_ENDED, DrawnTimes, RunTimes
from webhook.simulation.task import Settings, Task, TaskRecord

COARSE_ENDS: Final = 3_000
"""Ends of pods that a coarse line goes through."""

_PACE_FROM: Final = 10
"""Starts that make a pace."""


def play(
    present: Present,
    run_times: DrawnTimes,
    *,
    moments: int,
    is_late: Callable[[], bool],
    has_evictor: bool = True,
) -> dict[Uid, int]:
    """Return when the pods in line start, in seconds of Unix time; those that never do are left out.

    The engine plays so many moments, and none once it `is_late`. The same times are drawn whatever it plays.
    """
    ends = {
        each.resident.uid: present.now + run_times.left(each.likeness, present.age(each), each.run_time)
        for each in present.running
    }
    seconds = {each.pod.uid: run_times.left(each.likeness, 0, each.pod.pod.run_time) for each in present.line}
    if not moments or is_late():
        world = present.shared_world
        line = _line_of(world, present, ends, seconds, {each.pod.uid for each in present.line})
        found = line.starts(now=present.now, until=present.now + MAX_SECONDS, most=COARSE_ENDS)
        line.undo()
        return _with_pace(found, present, is_cut=line.is_cut)
    simulation, records = _simulated(present, ends, seconds, Settings(has_evictor=has_evictor))
    left = moments

    def is_over() -> bool:
        nonlocal left
        left -= 1
        return left < 0 or is_late() or all(record.started is not None for record in records.values())

    simulation.run(until=present.now + MAX_SECONDS, is_over=is_over)
    found = {uid: record.started for uid, record in records.items() if record.started is not None}
    if left >= 0 and not is_late():
        return _with_pace(found, present, is_cut=False)
    planned = ((pod.uid, simulation.end_of(pod.uid)) for pod in simulation.world.pods())
    going_on = {uid: at for uid, at in planned if at is not None}
    line = _line_of(simulation.world, present, going_on, seconds, records.keys() - found.keys())
    found |= line.starts(now=simulation.now, until=present.now + MAX_SECONDS, most=COARSE_ENDS)
    return _with_pace(found, present, is_cut=line.is_cut)


def _simulated(
    present: Present, ends: Mapping[Uid, int], seconds: Mapping[Uid, int], settings: Settings
) -> tuple[Simulation, dict[Uid, TaskRecord]]:
    """Return a simulation of the present, with the records of the pods in line."""
    simulation = Simulation(present.world_of_its_own(), (), settings=settings)
    for each in present.running:
        pod, at = each.resident, ends[each.resident.uid]
        task = Task(pod.name, as_created(pod), each.likeness.team, each.since, at - each.since, pod.user)
        simulation.run_on(pod, task, since=each.since, at=at)
    records = {each.pod.uid: simulation.wait_in_line(each.pod, seconds=seconds[each.pod.uid]) for each in present.line}
    has_gang = any(each.pod.pod.gang is not None for each in present.line)
    for later in (0, *GANG_LOOKS) if has_gang else (0,):
        simulation.look_at(present.now + later)
    return simulation, records


def _line_of(
    world: World, present: Present, ends: Mapping[Uid, int], seconds: Mapping[Uid, int], left: Iterable[Uid]
) -> CoarseLine:
    """Return the coarse line of the pods that are left, in the order of a world."""
    running = []
    for uid, at in ends.items():
        if (pod := world.pod(uid)) is not None:
            charge = world.charge_of(uid)
            team = UNASSIGNED if charge is None else charge.team
            running.append(CoarseRun(uid, at, team, pod.demand, pod.node))
    wanted, found = set(left), places(world)
    known = {each.pod.uid: each.pod for each in present.line}
    order = sorted(wanted, key=lambda uid: (found[uid].overall if uid in found else 0, uid))
    line = [CoarsePod(uid, known[uid].team, known[uid].pod.demand, present.slots[uid], seconds[uid]) for uid in order]
    return CoarseLine(world.policy, world.fleet, running=running, line=line)


def _with_pace(found: dict[Uid, int], present: Present, *, is_cut: bool) -> dict[Uid, int]:
    """Add the pods that were not played, at the pace at which the first half of the others started."""
    played = {each.pod.uid for each in present.line}
    if len(found) < _PACE_FROM:
        return found
    half = len(found) // 2
    per_pod = (sorted(found.values())[half] - present.now) / half
    missing = (
        uid
        for uid in present.places
        if uid not in found and (is_cut if uid in played else uid not in present.incomplete)
    )
    return found | {uid: round(present.now + per_pod * present.places[uid]) for uid in missing}


# Likely starts: the present is played several times, each time with other run times, and the starts are compared.
#
# The seed and the amounts of work are fixed, so the same world gives the same answer. Only where the time runs out
# before all samples were played does the machine make a difference: then there are fewer of them, or no answer.


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
        """Return when a pod is likely to start; implements webhook.core.explain.line_places.Starts."""
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
