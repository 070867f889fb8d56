"""How long `fairgate simulate` takes for a trace on a table of nodes, one core, under a policy with a queue.

Run it from the repository's root: `python benchmarks/simulate.py --trace TASKS.csv --nodes NODES.csv`. With --every N
only each Nth node is used, so that pods wait, and the queue and reclaim are measured too.

The figures of docs/benchmarks.md are those of
    python benchmarks/simulate.py --trace FILE --nodes FILE
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from foreign_trace import own_table

from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.summary import Recorder, summary_of
from webhook.addons.simulation.task import Task
from webhook.addons.simulation.traces.formats import nodes_of, read_nodes, with_shares
from webhook.addons.simulation.traces.load import Reading, read_trace, tasks_of
from webhook.core.model.amounts import ONE_GPU, TeamName
from webhook.core.model.policy import Defaults, OnLimit, OnNoRoom, Policy, Share, Team
from webhook.core.world.world import World


def policy_of(gpus: int) -> Policy:
    """Three teams with a third of the GPUs each, that may borrow all."""
    share = Share(gpus * ONE_GPU // 3, gpus * ONE_GPU)
    teams = tuple(Team(TeamName(name), namespaces=(name,), gpus=share) for name in ("one", "two", "three"))
    return Policy(teams=teams, defaults=Defaults(OnLimit.QUEUE, OnNoRoom.QUEUE), hash="benchmark")


def simulation_of(
    options: argparse.Namespace, *, seed: int = 0, change: Callable[[Iterable[Task]], Iterable[Task]] = iter
) -> Simulation:
    """Read a trace, and every so manieth node, as the options name them; the seed deals the tasks to the teams.

    `change` makes other tasks of those that were read.
    """
    with options.nodes.open(newline="") as file:
        nodes = read_nodes(own_table(file), name=str(options.nodes))[:: options.every]
    with options.trace.open(newline="") as file:
        rows = read_trace(own_table(file), name=str(options.trace)).rows
    models = {node.model for node in nodes}
    rows = [row for row in rows if not row.models or models & set(row.models)]
    world = World(with_shares(policy_of(sum(node.gpus for node in nodes))))
    for node in nodes_of(nodes, is_shared=True):
        world.set_node(node)
    world.sort_nodes()
    return Simulation(world, change(tasks_of(rows, world, Reading(str(options.trace), seed=seed))))


def run(options: argparse.Namespace) -> dict[str, Any]:
    began = time.perf_counter()
    simulation = simulation_of(options)
    recorder = Recorder(simulation)
    simulation.on_time = recorder.note
    read = time.perf_counter()
    simulation.run()
    ended = time.perf_counter()
    found = summary_of(simulation, recorder)
    return {
        "trace": options.trace.name,
        "tasks": len(simulation.records),
        "nodes": len(simulation.world.fleet),
        "gpus": found.gpus,
        "read_seconds": round(read - began, 2),
        "simulate_seconds": round(ended - read, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "waited": sum(bool(record.wait_seconds) for record in simulation.records),
        "wait_p99_seconds": found.total.wait_p99,
        "evictions": len(simulation.evictions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="tasks with times, of openb")
    parser.add_argument("--nodes", type=Path, required=True, help="nodes, of openb")
    parser.add_argument("--every", type=int, default=1, help="use every so manieth node (default all)")
    print(json.dumps(run(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
