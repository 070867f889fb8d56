"""One sample of a forecast: the line from now on, with run times that were drawn.

The engine plays it for some moments, decision by decision; the coarse line continues. What that does not reach either
follows at the pace of those before.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from webhook.core.explain.line_places import places
from webhook.core.model.names import UNASSIGNED, Uid
from webhook.core.model.run_time import MAX_SECONDS
from webhook.core.world.world import World
from webhook.simulation.arrivals import GANG_LOOKS
from webhook.simulation.engine import Simulation
from webhook.simulation.forecast.coarse_line import CoarseLine, CoarsePod, CoarseRun
from webhook.simulation.forecast.present import Present, as_created
from webhook.simulation.forecast.run_times import DrawnTimes
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
