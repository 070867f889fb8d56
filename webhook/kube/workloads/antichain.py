"""Which tasks of a graph weigh most together, of those that none waits for another of: the most that runs at once."""

from collections.abc import Sequence
from itertools import pairwise


def heaviest(weights: Sequence[int], before: Sequence[int]) -> set[int]:
    """Choose tasks, none of which comes before another, of the largest weight together.

    `before[i]` has a bit for every task that must end before task i starts, at any distance; tasks without weight are
    never chosen. By Dilworth's theorem it is what a largest flow from tasks to those after them leaves (a minimum cut).
    """
    size = len(weights)
    after = [sum(1 << later for later in range(size) if before[later] >> task & 1) for task in range(size)]
    left, room = list(weights), list(weights)  # what may still leave a task, and what may still come to one
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
    """Look for a way on which more can flow: what is reached on either side, by whom, and where the way ends."""
    size = len(left)
    tasks = sum(1 << task for task in range(size) if left[task])
    laters = 0
    of_task: dict[int, int] = {}  # the later one from which a task was reached, back along a flow
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
            for giver in range(size):
                if flow[giver][later] and not tasks >> giver & 1:
                    tasks |= 1 << giver
                    of_task[giver] = later
                    waiting.append(giver)
    return (tasks, laters), (of_task, of_later), None


def _path(end: int, parents: _Parents) -> list[tuple[int, int]]:
    """List the steps from a task to a later one, from the first task on."""
    of_task, of_later = parents
    steps = [(of_later[end], end)]
    while (back := of_task.get(steps[0][0])) is not None:
        steps.insert(0, (of_later[back], back))
    return steps


def _back(path: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """List the flows that a path takes back: between the end of each step and the task of the next."""
    return [(later, task) for (_, later), (task, _) in pairwise(path)]
