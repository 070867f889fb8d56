"""How well Fairgate packs a trace, compared with other placers in the same run.

Saturation: tasks come in random order until they have requested 130 % of the GPUs; none ends, none retries. Which share
of the GPUs is allocated in the end? With --churn tasks come and go at random around a load, for five mean lifetimes
after two of warm-up; which share of the largest tasks found a node? Both matter: placers that win the first by opening
every node have no whole node left for the second.

The order of nodes is random for each seed, the same for all placers. Fairgate knows nothing of future tasks; `fgd`
knows the whole list, as published.

The figures of docs/benchmarks.md are those of
    python benchmarks/packing.py --nodes NODES.csv --pods PODS.csv
    python benchmarks/packing.py --nodes NODES.csv --pods PODS.csv --churn 0.9
"""

import argparse
import heapq
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, quantiles, stdev
from typing import Any, Protocol

from packing_parts.fairgate import Fairgate
from packing_parts.lists import LISTS, drawn
from packing_parts.rivals import RIVALS
from packing_parts.trace import NodeRow, Task, churning, filling, read_nodes, read_tasks

ASKED_PERCENT = 130
SETTLING = 2.0
MEASURED = 5.0


class Placer(Protocol):
    """Places tasks on nodes, and removes them by the handle it returned."""

    def place(self, task: Task) -> object | None: ...

    def remove(self, held: object, task: Task) -> None: ...


PLACERS: dict[str, Callable[[list[NodeRow], list[Task], random.Random], Placer]] = {"fairgate": Fairgate, **RIVALS}


@dataclass(slots=True)
class Run:
    """One seed of one placer."""

    seed: int
    allocated_percent: float = 0.0
    unallocated_gpus: float = 0.0
    large_tasks: int = 0
    large_placed: int = 0
    micros: list[float] = field(default_factory=list)

    def place(self, placer: Placer, task: Task) -> object | None:
        before = time.perf_counter_ns()
        held = placer.place(task)
        self.micros.append((time.perf_counter_ns() - before) / 1000)
        return held

    def summary(self) -> dict[str, Any]:
        cuts = quantiles(self.micros, n=100)
        numbers = {key: value for key, value in asdict(self).items() if key != "micros"}
        return numbers | {"micros_p50": round(cuts[49], 1), "micros_p99": round(cuts[98], 1)}


def saturate(name: str, rows: list[NodeRow], tasks: list[Task], *, seed: int) -> Run:
    rng = random.Random(seed)
    rows = rng.sample(rows, len(rows))
    capacity = 1000 * sum(row.gpus for row in rows)
    stream = filling(tasks, milli=capacity * ASKED_PERCENT // 100, rng=rng)
    placer, run, taken = PLACERS[name](rows, tasks, rng), Run(seed), 0
    for task in stream:
        if run.place(placer, task) is not None:
            taken += task.milli
    run.allocated_percent = round(100 * taken / capacity, 3)
    run.unallocated_gpus = (capacity - taken) / 1000
    return run


def churn(name: str, rows: list[NodeRow], tasks: list[Task], *, seed: int, load: float) -> Run:
    rng = random.Random(seed)
    rows = rng.sample(rows, len(rows))
    capacity = 1000 * sum(row.gpus for row in rows)
    largest = max(task.gpus for task in tasks)
    placer, run = PLACERS[name](rows, tasks, rng), Run(seed)
    leaving: list[tuple[float, int, object, Task]] = []
    area, taken, last = 0.0, 0, SETTLING
    arrivals = churning(tasks, milli=capacity, load=load, lifetimes=SETTLING + MEASURED, rng=rng)
    for number, arrival in enumerate(arrivals):
        while leaving and leaving[0][0] <= arrival.at:
            at, _, held, task = heapq.heappop(leaving)
            area, last = area + taken * max(0.0, at - last), max(at, last)
            placer.remove(held, task)
            taken -= task.milli
        area, last = area + taken * max(0.0, arrival.at - last), max(arrival.at, last)
        held = run.place(placer, arrival.task)
        if arrival.task.gpus == largest and arrival.at >= SETTLING:
            run.large_tasks += 1
            run.large_placed += held is not None
        if held is not None:
            taken += arrival.task.milli
            heapq.heappush(leaving, (arrival.at + arrival.stay, number, held, arrival.task))
    run.allocated_percent = round(100 * area / (last - SETTLING) / capacity, 3)
    run.unallocated_gpus = round(capacity * (1 - run.allocated_percent / 100) / 1000, 1)
    return run


def summary(name: str, runs: list[Run]) -> dict[str, Any]:
    allocated = [run.allocated_percent for run in runs]
    large = sum(run.large_tasks for run in runs)
    summaries = [run.summary() for run in runs]
    return {
        "policy": name,
        "allocated_percent": round(mean(allocated), 3),
        "allocated_percent_sd": round(stdev(allocated), 3) if len(runs) > 1 else None,
        "unallocated_gpus": round(mean(run.unallocated_gpus for run in runs), 1),
        "large_placed_percent": round(100 * sum(run.large_placed for run in runs) / large, 2) if large else None,
        "micros_p50": round(mean(each["micros_p50"] for each in summaries), 1),
        "micros_p99": round(mean(each["micros_p99"] for each in summaries), 1),
        "runs": summaries,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, required=True, help="CSV: sn, cpu_milli, memory_mib, gpu, model")
    parser.add_argument(
        "--pods", type=Path, required=True, help="CSV: name, cpu_milli, memory_mib, num_gpu, gpu_milli[, gpu_spec]"
    )
    parser.add_argument("--seeds", type=int, default=1, help="runs, each in a different order (default 1)")
    parser.add_argument("--churn", type=float, metavar="LOAD", help="tasks come and go, at this share of the GPUs")
    parser.add_argument("--policy", action="append", choices=PLACERS, help="only these (default all)")
    parser.add_argument("--whole-gpus", action="store_true", help="a task that takes a part of a GPU takes a whole one")
    parser.add_argument("--drawn", choices=LISTS, help="another list drawn from this one, for each seed")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    rows, tasks = read_nodes(options.nodes), read_tasks(options.pods)
    if options.whole_gpus:
        tasks = [replace(task, share=1000) if task.gpus else task for task in tasks]
    results = []
    inputs = [drawn(options.drawn, rows, tasks, seed=seed) for seed in range(options.seeds)]
    for name in options.policy or PLACERS:
        if options.churn is None:
            runs = [saturate(name, *each, seed=seed) for seed, each in enumerate(inputs)]
        else:
            runs = [churn(name, *each, seed=seed, load=options.churn) for seed, each in enumerate(inputs)]
        results.append(summary(name, runs))
        if options.output == "table":
            show(results[-1], is_first=len(results) == 1)
    if options.output == "json":
        report = {
            "nodes": options.nodes.name,
            "pods": options.pods.name,
            "measure": "saturation" if options.churn is None else "churn",
            "drawn": options.drawn,
            "load": options.churn,
            "seeds": options.seeds,
            "gpus": sum(row.gpus for row in rows),
            "results": results,
        }
        print(json.dumps(report, indent=2))


def show(result: dict[str, Any], *, is_first: bool) -> None:
    if is_first:
        print("| placer | allocated % | sd | GPUs not allocated | largest tasks placed % | µs p50 | p99 |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
    keys = ("allocated_percent", "allocated_percent_sd", "unallocated_gpus", "large_placed_percent")
    cells = ["-" if result[key] is None else f"{result[key]:,.2f}" for key in keys]
    print(f"| {result['policy']} | {' | '.join(cells)} | {result['micros_p50']} | {result['micros_p99']} |", flush=True)


if __name__ == "__main__":
    main()
