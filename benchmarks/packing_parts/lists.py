"""Other task lists, derived from one: a placer tuned on one list may not fit the next cluster.

Each keeps the sizes of its tasks and changes their frequency, as the lists of openb differ among themselves, or takes
other nodes. The result depends only on the seed.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from packing_parts.trace import NodeRow, Task

Drawn = tuple[list[NodeRow], list[Task]]


def drawn(name: str | None, rows: list[NodeRow], tasks: list[Task], *, seed: int) -> Drawn:
    """Derive a list by its name; without a name it is unchanged."""
    return (rows, tasks) if name is None else LISTS[name](rows, tasks, random.Random(f"{name} {seed}"))


def _share_of_gpus(belongs: Callable[[Task], bool], share: float) -> Callable[..., Drawn]:
    """Change the share of one kind of tasks in all requested GPUs."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        requested = sum(task.milli for task in tasks)
        kind, others = [t for t in tasks if t.gpus and belongs(t)], [t for t in tasks if t.gpus and not belongs(t)]
        found = [task for task in tasks if not task.gpus]
        for several, wanted in ((kind, share * requested), (others, (1 - share) * requested)):
            got = 0
            while got < wanted and several:
                found.append(rng.choice(several))
                got += found[-1].milli
        return rows, found

    return draw


def _without_gpus(times: float) -> Callable[..., Drawn]:
    """Multiply the number of tasks without GPUs."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        plain = [task for task in tasks if not task.gpus]
        return rows, [*(t for t in tasks if t.gpus), *rng.choices(plain, k=round(times * len(plain)))]

    return draw


def _with_models(share: float) -> Callable[..., Drawn]:
    """Restrict this share of the tasks with GPUs to one or two models that could hold them."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        def insist(task: Task) -> Task:
            able = [row.model for row in rows if row.cpu >= task.cpu and row.gpus >= task.gpus]
            return replace(task, models=tuple(sorted({rng.choice(able), rng.choice(able)}))) if able else task

        return rows, [insist(task) if task.gpus and rng.random() < share else task for task in tasks]

    return draw


def _nodes(share: float) -> Callable[..., Drawn]:
    """Draw some of the nodes, and draw the tasks again."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        return rng.sample(rows, round(share * len(rows))), rng.choices(tasks, k=len(tasks))

    return draw


def _is_shared(task: Task) -> bool:
    return task.share < 1000


def _is_multiple(task: Task) -> bool:
    return task.gpus > 1


LISTS: Final[dict[str, Callable[..., Drawn]]] = {
    "cpu0": _without_gpus(0),
    "cpu2": _without_gpus(2),
    "cpu3": _without_gpus(3),
    "gpushare40": _share_of_gpus(_is_shared, 0.4),
    "gpushare60": _share_of_gpus(_is_shared, 0.6),
    "gpushare100": _share_of_gpus(_is_shared, 1.0),
    "gpuspec10": _with_models(0.1),
    "gpuspec33": _with_models(0.33),
    "multigpu30": _share_of_gpus(_is_multiple, 0.3),
    "multigpu50": _share_of_gpus(_is_multiple, 0.5),
    "nodes50": _nodes(0.5),
    "nodes25": _nodes(0.25),
}
