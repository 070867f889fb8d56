"""A trace of nodes and tasks, and the streams derived from it: tasks that fill a cluster, or that come and go."""

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: cpu in thousandths of a core, memory in MiB."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task: `share` is in thousandths of each of its GPUs; `models` are those it may run on, empty: any."""

    cpu: int
    memory: int
    gpus: int
    share: int
    models: tuple[str, ...] = ()

    @property
    def milli(self) -> int:
        return self.gpus * self.share


def read_nodes(path: Path) -> list[NodeRow]:
    with path.open(newline="") as file:
        return [
            NodeRow(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        ]


def read_tasks(path: Path) -> list[Task]:
    """Read the tasks in the order of their names."""
    with path.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["name"])
    return [
        Task(
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
            tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
        )
        for row in rows
    ]


def filling(tasks: list[Task], *, milli: int, rng: random.Random) -> list[Task]:
    """Shuffle the tasks, and repeat or drop some at random until they request just under `milli` in total."""
    stream = rng.sample(tasks, len(tasks))
    requested = sum(task.milli for task in stream)
    while requested > milli:
        requested -= stream.pop(rng.randrange(len(stream))).milli
    while True:
        more = rng.choice(tasks)
        if requested + more.milli > milli:
            return stream
        stream.append(more)
        requested += more.milli


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task with its arrival and duration, in mean lifetimes."""

    at: float
    stay: float
    task: Task


def churning(tasks: list[Task], *, milli: int, load: float, lifetimes: float, rng: random.Random) -> Iterator[Arrival]:
    """Draw tasks at random times so that they would hold `load` of the capacity if all were placed."""
    rate = load * milli / (sum(task.milli for task in tasks) / len(tasks))
    at = 0.0
    while (at := at + rng.expovariate(rate)) < lifetimes:
        yield Arrival(at, rng.expovariate(1.0), rng.choice(tasks))
