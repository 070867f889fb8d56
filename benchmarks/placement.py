"""Time of a placement with reservation, by number of nodes: choose eight nodes for a pod, take room on the first.

Two fleets: nodes of one kind with whole GPUs, ten pods on each; and nodes of several kinds with pods that also take
parts of GPUs, filled to seventy percent, from the files of a trace or, without them, from a mix like that of openb.
Before each placement a pod ends, and the arrival is counted in the demand mix, as in the webhook.

The figures of docs/benchmarks.md are those of
    python benchmarks/placement.py
"""

import argparse
import gc
import platform
import random
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from decide import SHAPES, Spread, crowded_world, shape, timed
from packing_parts.fairgate import LISTED_NODES, Fairgate
from packing_parts.trace import NodeRow, Task, read_nodes, read_tasks

from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS
from webhook.core.model.demand import Demand
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet

NODE_KINDS = [
    *[NodeRow("g2", 96_000, 393_216, 8, "G2")] * 14,
    *[NodeRow("t4", 104_000, 524_288, 2, "T4")] * 10,
    *[NodeRow("p100", 16_000, 122_880, 2, "P100")] * 3,
    NodeRow("g3", 128_000, 786_432, 8, "G3"),
    NodeRow("v100", 32_000, 131_072, 4, "V100M16"),
]
TASKS = [
    *[
        Task(cpu, memory, 1, 1000)
        for cpu, memory in [(4000, 16_384), (8000, 30_720), (12_000, 24_576)]
        for _ in range(16)
    ],
    *[Task(cpu, cpu * 2, 1, share) for cpu in (2000, 4000, 6000, 11_000) for share in (200, 360, 460, 500, 750) * 2],
    *[Task(cpu, cpu * 4, 0, 0) for cpu in (1000, 2000, 4000, 8000, 16_000, 32_000)],
    *[Task(12_000 * gpus, 49_152 * gpus, gpus, 1000) for gpus in (2, 4, 8)],
]


class Traffic:
    """Pods that come and go at random."""

    def __init__(self, fleet: Fleet, draw: Callable[[], Demand], rng: random.Random) -> None:
        self.fleet, self._draw, self._rng = fleet, draw, rng
        self._held: list[tuple[NodeName, Demand, Uid]] = []
        self._came = 0

    def __len__(self) -> int:
        return len(self._held)

    def place(self, wanted: Demand) -> None:
        fleet = self.fleet
        fleet.gpus.demand_mix.note(wanted)
        found = best_nodes(fleet, wanted, fleet.matching(NO_CONSTRAINTS), count=LISTED_NODES, keep_whole=1)
        if found:
            holder = Uid(f"p{self._came}")
            fleet.take(found[0], wanted, holder=holder)
            self._held.append((found[0], wanted, holder))

    def come(self) -> int:
        self._came += 1
        wanted = self._draw()
        return timed(lambda: self.place(wanted))

    def leave(self) -> None:
        place = self._rng.randrange(len(self._held))
        self._held[place], self._held[-1] = self._held[-1], self._held[place]
        name, held, holder = self._held.pop()
        self.fleet.take(name, held, sign=-1, holder=holder)


def one_kind(nodes: int, *, seed: int) -> Traffic:
    rng = random.Random(seed)
    shapes = [shape(*each) for each in SHAPES]
    traffic = Traffic(crowded_world(nodes, rng).fleet, lambda: rng.choices(shapes, weights=(4, 4, 2, 1, 1))[0], rng)
    for _ in range(200):
        traffic.come()
    return traffic


def mixed(nodes: int, rows: list[NodeRow], tasks: list[Task], *, seed: int) -> Traffic:
    rng = random.Random(seed)
    rows = list(islice(cycle(rng.sample(rows, len(rows))), nodes))
    placer = Fairgate(rows, tasks, rng)
    demands = [placer.demand(task) for task in tasks]
    traffic = Traffic(placer.world.fleet, lambda: rng.choice(demands), rng)
    wanted = 700 * sum(row.gpus for row in rows) / (sum(task.milli for task in tasks) / len(tasks))
    for _ in range(int(wanted)):
        traffic.come()
    return traffic


def measured(traffic: Traffic, *, calls: int) -> Spread:
    samples, level = [], len(traffic)
    gc.collect()
    gc.freeze()
    for call in range(calls + 500):
        if len(traffic) >= level:
            traffic.leave()
        taken = traffic.come()
        if call >= 500:
            samples.append(taken)
    gc.unfreeze()
    return Spread(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 20_000], help="numbers of nodes")
    parser.add_argument("--nodes", type=Path, help="kinds of nodes from a trace, as for packing.py")
    parser.add_argument("--pods", type=Path, help="tasks from a trace, as for packing.py")
    options = parser.parse_args()
    rows = NODE_KINDS if options.nodes is None else read_nodes(options.nodes)
    tasks = TASKS if options.pods is None else read_tasks(options.pods)
    print(f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {options.calls} calls, microseconds\n")
    print("| fleet | nodes | p50 | growth | p99 |\n| --- | --- | --- | --- | --- |")
    for fleet in ("one kind", "mixed"):
        base = 0.0
        for nodes in options.sizes:
            made = one_kind(nodes, seed=options.seed) if fleet == "one kind" else None
            traffic = made or mixed(nodes, rows, tasks, seed=options.seed)
            spread = measured(traffic, calls=options.calls)
            base = base or spread.p50
            print(
                f"| {fleet} | {nodes:,} | {spread.p50:.1f} | {spread.p50 / base:.2f} x | {spread.p99:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
