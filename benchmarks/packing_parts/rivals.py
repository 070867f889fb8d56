"""Other placers for comparison: each is a cost of a node for a task, the lowest wins, ties by the order of nodes.

`fgd` is the published policy of "Beware of Fragmentation" (USENIX ATC '23), rounding and tie-break included; `least`
and `most` are kube-scheduler's LeastAllocated and MostAllocated over cpu, memory and GPUs.
"""

import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from typing import Final

from packing_parts.trace import NodeRow, Task

NOWHERE: Final = math.inf


class Machine:
    """A node and its free resources; each GPU separately, in thousandths."""

    def __init__(self, row: NodeRow) -> None:
        self.row = row
        self.cpu, self.memory, self.gpus = row.cpu, row.memory, [1000] * row.gpus

    def devices_for(self, task: Task) -> list[int] | None:
        """Return the GPUs that fit most tightly; None where the task does not fit."""
        if task.cpu > self.cpu or task.memory > self.memory or (task.models and self.row.model not in task.models):
            return None
        if not task.gpus:
            return []
        fitting = sorted((left, index) for index, left in enumerate(self.gpus) if left >= task.share)
        return [index for _, index in fitting[: task.gpus]] if len(fitting) >= task.gpus else None


class Placer(ABC):
    """Places tasks one by one. Costs are cached by task, and recomputed for changed nodes."""

    def __init__(self, rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> None:
        del tasks
        self.machines = [Machine(row) for row in rows]
        self.rng = rng
        self._changed: list[int] = []
        self._costs: dict[Task, list[float]] = {}
        self._seen: dict[Task, int] = {}

    @abstractmethod
    def cost(self, machine: Machine, task: Task, devices: list[int]) -> float:
        """Return the cost of a task on a node, on these devices."""

    def place(self, task: Task) -> tuple[int, list[int]] | None:
        """Place a task on the best node; return the node and the devices."""
        costs = self._costs.get(task)
        stale: range | set[int]
        if costs is None:
            costs = self._costs[task] = [NOWHERE] * len(self.machines)
            stale = range(len(self.machines))
        else:
            stale = set(self._changed[self._seen[task] :])
        for number in stale:
            machine = self.machines[number]
            devices = machine.devices_for(task)
            costs[number] = NOWHERE if devices is None else self.cost(machine, task, devices)
        self._seen[task] = len(self._changed)
        chosen = self.choose(costs)
        if chosen is None:
            return None
        devices = self.machines[chosen].devices_for(task) or []
        self.move(chosen, task, devices, sign=-1)
        return chosen, devices

    def choose(self, costs: list[float]) -> int | None:
        least = min(costs)
        return None if least == NOWHERE else costs.index(least)

    def remove(self, held: tuple[int, list[int]], task: Task) -> None:
        """Remove a task from its node."""
        number, devices = held
        self.move(number, task, devices, sign=1)

    def move(self, number: int, task: Task, devices: list[int], *, sign: int) -> None:
        """Take a task's room (-1) or give it back (1)."""
        machine = self.machines[number]
        machine.cpu += sign * task.cpu
        machine.memory += sign * task.memory
        for index in devices:
            machine.gpus[index] += sign * task.share
        self._changed.append(number)


class FirstFit(Placer):
    """The first node in a fixed order: the baseline."""

    def cost(self, machine: Machine, task: Task, devices: list[int]) -> float:
        del machine, task, devices
        return 0.0


class Random(FirstFit):
    """A random node with room."""

    def choose(self, costs: list[float]) -> int | None:
        able = [number for number, cost in enumerate(costs) if cost != NOWHERE]
        return self.rng.choice(able) if able else None


class LeastAllocated(Placer):
    """The node with the smallest mean used share of cpu, memory and GPUs, including the task."""

    def cost(self, machine: Machine, task: Task, devices: list[int]) -> float:
        del devices
        row = machine.row
        used = [1 - (machine.cpu - task.cpu) / row.cpu, 1 - (machine.memory - task.memory) / row.memory]
        if row.gpus:
            used.append(1 - (sum(machine.gpus) - task.milli) / (1000 * row.gpus))
        return sum(used) / len(used)


class MostAllocated(LeastAllocated):
    """The node with the largest such share."""

    def cost(self, machine: Machine, task: Task, devices: list[int]) -> float:
        return -super().cost(machine, task, devices)


class BestFit(Placer):
    """The least left over, cpu and GPUs alike, in hundredths of the largest node."""

    def __init__(self, rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> None:
        super().__init__(rows, tasks, rng)
        self._cpu, self._gpus = max(row.cpu for row in rows), max(row.gpus for row in rows)

    def cost(self, machine: Machine, task: Task, devices: list[int]) -> float:
        del devices
        cpu = (machine.cpu - task.cpu) / self._cpu
        gpus = (sum(machine.gpus) - task.milli) / (1000 * self._gpus)
        return math.floor(100 * (0.5 * cpu + 0.5 * gpus))


class Fgd(Placer):
    """The published fragmentation gradient: rounded, ties by a fixed order, with the whole list known in advance."""

    def __init__(self, rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> None:
        super().__init__(rows, tasks, rng)
        counts = Counter((task.cpu, task.gpus, task.share, task.models) for task in tasks)
        covered, self._mix = 0, []
        for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if covered >= 0.95 * len(tasks):
                break
            covered += count
            self._mix.append((*shape, count))
        self._mix = [(*shape[:4], shape[4] / covered) for shape in self._mix]
        self._known: dict[tuple[int, tuple[int, ...], str], float] = {}

    def cost(self, machine: Machine, task: Task, devices: list[int]) -> float:
        before = self._fragments(machine.cpu, machine.gpus, machine.row.model)
        choices = [[index] for index in range(len(machine.gpus))] if task.gpus == 1 and task.share < 1000 else [devices]
        best, tried = -math.inf, set()
        for choice in choices:
            gpus = list(machine.gpus)
            if len(choices) > 1 and (gpus[choice[0]] < task.share or gpus[choice[0]] in tried):
                continue
            tried.update(gpus[index] for index in choice)
            for index in choice:
                gpus[index] -= task.share
            gained = before - self._fragments(machine.cpu - task.cpu, gpus, machine.row.model)
            best = max(best, gained)
        return -math.floor(100 / (1 + math.exp(-best / 1000)))

    def _fragments(self, cpu: int, gpus: list[int], model: str) -> float:
        key = (cpu, tuple(sorted(gpus)), model)
        known = self._known.get(key)
        if known is None:
            if len(self._known) > 1_000_000:
                self._known.clear()
            known = self._known[key] = self._measure(cpu, gpus, model)
        return known

    def _measure(self, cpu: int, gpus: list[int], model: str) -> float:
        free, total = sum(gpus), 0.0
        for need, count, share, models, weight in self._mix:
            if not count or need > cpu or (models and model not in models):
                total += weight * free
                continue
            able = [left for left in gpus if left >= share]
            total += weight * (free if len(able) < count else free - sum(able))
        return total


RIVALS: Final[dict[str, type[Placer]]] = {
    "random": Random,
    "first-fit": FirstFit,
    "least": LeastAllocated,
    "most": MostAllocated,
    "best-fit": BestFit,
    "fgd": Fgd,
}
