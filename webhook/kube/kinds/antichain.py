"""The heaviest antichain of a task graph: the tasks of largest total weight that may all run at the same time."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from webhook.kube.kinds.budget import Budget


def heaviest(weights: Sequence[int], before: Sequence[int], budget: Budget) -> set[int]:
    """Return the set of tasks with the largest total weight in which no task depends on another.

    `before[i]` has a bit for each task that must end before task i starts, directly or transitively; tasks without
    weight are never chosen. By Dilworth's theorem a minimum cut of the flow from tasks to later tasks gives the set.
    It takes the fewest steps if each task has a smaller number than those before it.
    """
    size = len(weights)
    after = _reversed(before, budget)
    left, room = list(weights), list(weights)  # remaining outgoing and incoming capacity of each task
    flow: list[dict[int, int]] = [{} for _ in range(size)]  # of each later task: the flows from tasks, none is 0
    _fill(after, left, room, flow, budget)
    while True:
        reached, parents, end = _search(after, left, room, flow, budget)
        if end is None:
            tasks, laters = reached
            return {task for task in range(size) if weights[task] and tasks >> task & 1 and not laters >> task & 1}
        path = _path(end, parents)
        amount = min([left[path[0][0]], room[end], *(flow[later][task] for later, task in _back(path))])
        left[path[0][0]] -= amount
        room[end] -= amount
        for task, later in path:
            flow[later][task] = flow[later].get(task, 0) + amount
        for later, task in _back(path):
            flow[later][task] -= amount
            if not flow[later][task]:
                del flow[later][task]


def _fill(
    after: Sequence[int], left: list[int], room: list[int], flow: Sequence[dict[int, int]], budget: Budget
) -> None:
    """Add what flows directly from each task to later ones, the largest number first, so that few paths remain."""
    has_room = sum(1 << later for later, amount in enumerate(room) if amount)
    for task, tasks in enumerate(after):
        for later in bits(tasks & has_room, budget):
            if not left[task]:
                break
            amount = min(left[task], room[later])
            flow[later][task] = amount
            left[task] -= amount
            room[later] -= amount
            if not room[later]:
                has_room ^= 1 << later


def _reversed(before: Sequence[int], budget: Budget) -> list[int]:
    """Return for each task the bit set of those that it comes before."""
    after = [0] * len(before)
    for later, tasks in enumerate(before):
        bit = 1 << later
        for task in bits(tasks, budget):
            after[task] |= bit
    return after


def bits(numbers: int, budget: Budget) -> Iterator[int]:
    """Yield the numbers of a bit set, the largest first."""
    cost = 1 + (numbers.bit_length() >> 11)  # what an operation on so long a number takes
    while numbers:
        budget.step(cost)
        number = numbers.bit_length() - 1
        numbers ^= 1 << number
        yield number


_Parents = tuple[dict[int, int], dict[int, int]]


def _search(
    after: Sequence[int], left: Sequence[int], room: Sequence[int], flow: Sequence[dict[int, int]], budget: Budget
) -> tuple[tuple[int, int], _Parents, int | None]:
    """Search an augmenting path: returns the nodes reached on either side, their parents, and the path's end."""
    waiting = [task for task in range(len(left)) if left[task]]
    budget.step(len(left))
    tasks = sum(1 << task for task in waiting)
    laters = 0
    of_task: dict[int, int] = {}  # the later task from which a task was reached, back along a flow
    of_later: dict[int, int] = {}
    while waiting:
        task = waiting.pop()
        found = after[task] & ~laters
        laters |= found
        budget.step(1 + (found.bit_length() >> 11))
        for later in bits(found, budget):
            of_later[later] = task
            if room[later]:
                return (tasks, laters), (of_task, of_later), later
            budget.step(len(flow[later]))
            for source in flow[later]:
                if not tasks >> source & 1:
                    tasks |= 1 << source
                    of_task[source] = later
                    waiting.append(source)
    return (tasks, laters), (of_task, of_later), None


def _path(end: int, parents: _Parents) -> list[tuple[int, int]]:
    """Return the forward edges of an augmenting path, from its first task on."""
    of_task, of_later = parents
    steps = [(of_later[end], end)]
    while (back := of_task.get(steps[-1][0])) is not None:
        steps.append((of_later[back], back))
    return steps[::-1]


def _back(path: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the flows that a path reduces: from the end of each edge to the task of the next."""
    return [(later, task) for (_, later), (task, _) in pairwise(path)]
