"""The heaviest antichain of a task graph: the tasks of largest total weight that may all run at the same time."""

from collections.abc import Sequence
from itertools import pairwise


def heaviest(weights: Sequence[int], before: Sequence[int]) -> set[int]:
    """Return the set of tasks with the largest total weight in which no task depends on another.

    `before[i]` has a bit for each task that must end before task i starts, directly or transitively; tasks without
    weight are never chosen. By Dilworth's theorem a minimum cut of the flow from tasks to later tasks gives the set.
    """
    size = len(weights)
    after = [sum(1 << later for later in range(size) if before[later] >> task & 1) for task in range(size)]
    left, room = list(weights), list(weights)  # remaining outgoing and incoming capacity of each task
    flow = [[0] * size for _ in range(size)]
    while True:
        reached, parents, end = _search(after, left, room, flow)
        if end is None:
            tasks, laters = reached
            return {task for task in range(size) if weights[task] and tasks >> task & 1 and not laters >> task & 1}
        path = _path(end, parents)
        amount = min([left[path[0][0]], room[end], *(flow[task][later] for later, task in _back(path))])
        left[path[0][0]] -= amount
        room[end] -= amount
        for task, later in path:
            flow[task][later] += amount
        for later, task in _back(path):
            flow[task][later] -= amount


_Parents = tuple[dict[int, int], dict[int, int]]


def _search(
    after: Sequence[int], left: Sequence[int], room: Sequence[int], flow: Sequence[Sequence[int]]
) -> tuple[tuple[int, int], _Parents, int | None]:
    """Search an augmenting path: returns the nodes reached on either side, their parents, and the path's end."""
    size = len(left)
    tasks = sum(1 << task for task in range(size) if left[task])
    laters = 0
    of_task: dict[int, int] = {}  # the later task from which a task was reached, back along a flow
    of_later: dict[int, int] = {}
    waiting = [task for task in range(size) if left[task]]
    while waiting:
        task = waiting.pop()
        found = after[task] & ~laters
        laters |= found
        while found:
            later = found.bit_length() - 1
            found ^= 1 << later
            of_later[later] = task
            if room[later]:
                return (tasks, laters), (of_task, of_later), later
            for source in range(size):
                if flow[source][later] and not tasks >> source & 1:
                    tasks |= 1 << source
                    of_task[source] = later
                    waiting.append(source)
    return (tasks, laters), (of_task, of_later), None


def _path(end: int, parents: _Parents) -> list[tuple[int, int]]:
    """Return the forward edges of an augmenting path, from its first task on."""
    of_task, of_later = parents
    steps = [(of_later[end], end)]
    while (back := of_task.get(steps[0][0])) is not None:
        steps.insert(0, (of_later[back], back))
    return steps


def _back(path: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the flows that a path reduces: from the end of each edge to the task of the next."""
    return [(later, task) for (_, later), (task, _) in pairwise(path)]
