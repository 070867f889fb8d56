"""What a rule knows: how long jobs run, and how many GPUs owners will hold inside their shares. True, or learned."""

import heapq
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping, Sequence

from webhook.addons.simulation.task import Task
from webhook.core.model.amounts import ONE_GPU, TeamName
from webhook.core.world.world import World

CELL_SECONDS = 1_800
CELLS = 336
"""A week ahead, in half hours."""

DAY = 86_400 // CELL_SECONDS
MEMORY = 28 * DAY
RISES = 2 * DAY
AT_LEAST = 3
UNKNOWN_SECONDS = 600


def gpus_of(task: Task) -> float:
    return task.pod.demand.gpus / ONE_GPU


def true_run_times(tasks: Iterable[Task]) -> dict[str, int]:
    """Return how long each task runs, by its name."""
    return {task.name: task.seconds or 1 for task in tasks}


def learned_run_times(tasks: Iterable[Task]) -> dict[str, int]:
    """Return the median of a task's kind before it came, of all tasks where fewer than `AT_LEAST` of them ended.

    A task counts as ended once it would be, if it had started at once.
    """
    found: dict[str, int] = {}
    ends: list[tuple[int, str, Hashable, int]] = []
    ended: dict[Hashable, list[int]] = {}
    for task in sorted(tasks, key=lambda each: each.created):
        while ends and ends[0][0] <= task.created:
            _, _, kind, seconds = heapq.heappop(ends)
            insort(ended.setdefault(kind, []), seconds)
            insort(ended.setdefault(None, []), seconds)
        kind = (task.team, task.user, task.pod.demand.gpus)
        known = next((each for key in (kind, None) if len(each := ended.get(key, [])) >= AT_LEAST), [UNKNOWN_SECONDS])
        found[task.name] = known[len(known) // 2]
        seconds = task.seconds or 1
        heapq.heappush(ends, (task.created + seconds, task.name, kind, seconds))
    return found


class TrueReturns:
    """What owners will hold, if each of their tasks starts at once: per half hour the most, within each share."""

    def __init__(self, tasks: Sequence[Task], shares: Mapping[TeamName, float]) -> None:
        self._begin = min(task.created for task in tasks)
        ends = max(task.created + (task.seconds or 1) for task in tasks)
        self._held = [0.0] * ((ends - self._begin) // CELL_SECONDS + 2)
        for team, share in shares.items():
            mine = [task for task in tasks if task.team == team] if share else []
            changes = [(task.created, gpus_of(task)) for task in mine]
            changes += [(task.created + (task.seconds or 1), -gpus_of(task)) for task in mine]
            changes.sort(reverse=True)
            now = 0.0
            for cell in range(len(self._held)):
                most = now
                while changes and changes[-1][0] < self._begin + (cell + 1) * CELL_SECONDS:
                    now += changes.pop()[1]
                    most = max(most, now)
                self._held[cell] += min(share, most)

    def ahead(self, world: World) -> list[float]:
        """Return the GPUs in each coming cell."""
        cell = (world.now - self._begin) // CELL_SECONDS
        return self._held[cell : cell + CELLS]


class LearnedReturns:
    """What owners hold now, and by how much more at most `part` of the past moments were followed within each time."""

    def __init__(self, begin: int, *, part: float) -> None:
        self._begin = begin
        self._part = part
        self._held: list[float] = []
        self._rises: list[float] = []
        self._learned = 0

    def note(self, world: World) -> None:
        """Remember what owners hold now."""
        cell, held = (world.now - self._begin) // CELL_SECONDS, _guaranteed(world)
        self._held += [held] * (cell + 1 - len(self._held))
        self._held[cell] = max(self._held[cell], held)

    def ahead(self, world: World) -> list[float]:
        """Return the GPUs in each coming cell; none before two days were seen, so that nothing is held."""
        if len(self._held) < 2 * DAY:
            return []
        if len(self._held) - self._learned >= DAY // 4:
            self._learned = len(self._held)
            self._rises = [0.0, *self._found_rises(self._held[-MEMORY:])]
        now = _guaranteed(world)
        return [now + rise for rise in self._rises]

    def _found_rises(self, held: Sequence[float]) -> Iterable[float]:
        most = list(held)
        for cells in range(1, min(RISES, len(held) - DAY)):
            most = [max(*pair) for pair in zip(most, held[cells:], strict=False)]
            rises = sorted(after - before for after, before in zip(most, held, strict=False))
            yield rises[int(self._part * (len(rises) - 1))]


def _guaranteed(world: World) -> float:
    return sum(usage.total - usage.preemptible for usage in world.usage_by_team().values()) / ONE_GPU
