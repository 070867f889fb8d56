"""Other lists, drawn from one: what a placer was tuned on says little about the next cluster.

Each keeps the sizes of its tasks and changes how often which kind comes, as the lists of openb do among themselves, or
takes other nodes. The draw depends on the seed alone.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from packing_trace import NodeRow, Task

Drawn = tuple[list[NodeRow], list[Task]]


def drawn(name: str | None, rows: list[NodeRow], tasks: list[Task], *, seed: int) -> Drawn:
    """Draw a list by its name; without one it stays as it is."""
    return (rows, tasks) if name is None else LISTS[name](rows, tasks, random.Random(f"{name} {seed}"))


def _share_of_gpus(belongs: Callable[[Task], bool], share: float) -> Callable[..., Drawn]:
    """Let tasks of a kind ask for so much of all GPUs that are asked for."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        asked = sum(task.milli for task in tasks)
        kind, others = [t for t in tasks if t.gpus and belongs(t)], [t for t in tasks if t.gpus and not belongs(t)]
        found = [task for task in tasks if not task.gpus]
        for several, wanted in ((kind, share * asked), (others, (1 - share) * asked)):
            got = 0
            while got < wanted and several:
                found.append(rng.choice(several))
                got += found[-1].milli
        return rows, found

    return draw


def _without_gpus(times: float) -> Callable[..., Drawn]:
    """Draw so many times as many tasks without GPUs."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        plain = [task for task in tasks if not task.gpus]
        return rows, [*(t for t in tasks if t.gpus), *rng.choices(plain, k=round(times * len(plain)))]

    return draw


def _with_models(share: float) -> Callable[..., Drawn]:
    """Let so many of the tasks with GPUs insist on one or two models, of nodes that could hold them."""

    def draw(rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> Drawn:
        def insist(task: Task) -> Task:
            able = [row.model for row in rows if row.cpu >= task.cpu and row.gpus >= task.gpus]
            return replace(task, models=tuple(sorted({rng.choice(able), rng.choice(able)}))) if able else task

        return rows, [insist(task) if task.gpus and rng.random() < share else task for task in tasks]

    return draw


def _nodes(share: float) -> Callable[..., Drawn]:
    """Draw some of the nodes, and the tasks anew."""

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
