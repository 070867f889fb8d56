"""Pods from first create to all bound, with and without Fairgate, in one run on a separate control plane.

`stock`     kube-apiserver and kube-scheduler alone;
`fairgate`  the same with Fairgate's webhooks, one busy team or several, one replica or several.
Rounds alternate. Pods are bare, or with `--jobs` of one Job each. Prints Markdown tables: seconds until the last answer
and the last binding, the rate to stock's of the same round, and per pod the CPU milliseconds of each process, from the
first create until all pods run, and the bytes of a running pod. Medians, with the range. Run it from the repository's
root: `python benchmarks/throughput.py --nodes 500 --pods 4000 --rounds 3`.

The figures of docs/benchmarks.md are those of
    python benchmarks/throughput.py --nodes 500 --pods 4000 --rounds 3 --teams 5
    python benchmarks/throughput.py --nodes 500 --pods 4000 --rounds 3 --jobs
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from clusters.load import (
    POD_BYTES,
    clear,
    cpu_of,
    create,
    one_gpu_job,
    one_gpu_pod,
    pod_bytes,
    spread,
    wait_bound,
    wait_running,
)

from tests.chaos.replicas import Replicas, replicas
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for

FAIRGATE: Final = "Fairgate"
PROCESSES: Final = {
    "API server": lambda name: name == API_SERVER,
    "scheduler": lambda name: name == SCHEDULER,
    FAIRGATE: lambda name: name.startswith("replicas-") and name[-1].isdigit(),
    "KWOK": lambda name: name == KWOK,
    "etcd": lambda name: name == ETCD,
    "controllers": lambda name: name == CONTROLLER_MANAGER,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One round: seconds to the last answer and the last binding, CPU milliseconds a pod by process, bytes of a pod."""

    created_seconds: float
    bound_seconds: float
    milliseconds: dict[str, float]
    bytes: dict[str, float]


def measure(cluster: ControlPlane, namespaces: list[str], *, prefix: str, options: argparse.Namespace) -> Reading:
    """Create all pods, wait until the last one is bound, and clean up."""
    make = one_gpu_job if options.jobs else one_gpu_pod
    with ExitStack() as stack:
        spent = {part: stack.enter_context(cpu_of(cluster, names)) for part, names in PROCESSES.items()}
        started = time.perf_counter()
        made = asyncio.run(
            create(cluster, namespaces, options.pods, prefix=prefix, connections=options.connections, make=make)
        )
        if failures := made.failures():
            raise SystemExit(f"{prefix}: {len(failures)} of {options.pods} creations failed, one with: {failures[0]}")
        bound = wait_bound(cluster, namespaces, options.pods) - started
        wait_running(cluster, namespaces, options.pods)  # what comes after the binding is part of the price
        used = {part: seconds() * 1000 / options.pods for part, seconds in spent.items()}
    size = asyncio.run(pod_bytes(cluster, namespaces[0]))
    clear(cluster, namespaces)
    return Reading(made.seconds, bound, used, size)


def compare(cluster: ControlPlane, running: Replicas, options: argparse.Namespace) -> dict[str, list[Reading]]:
    """Alternate between rounds without the webhooks and with them."""
    stock = [make_namespace(cluster, f"stock-{number}") for number in range(options.teams)]
    ours = [team.namespace for team in running.teams]
    readings: dict[str, list[Reading]] = defaultdict(list)
    for number in range(options.rounds):
        for name in ("stock", "fairgate") if number % 2 == 0 else ("fairgate", "stock"):
            if name == "stock":
                running.unregister()
            else:
                running.register()
                wait_for(cluster, lambda: not any(running.charged(0).values()), what="no GPU is charged", timeout=120)
            namespaces = stock if name == "stock" else ours
            readings[name].append(measure(cluster, namespaces, prefix=f"{name}-{number}", options=options))
    return readings


def report(readings: dict[str, list[Reading]], options: argparse.Namespace) -> None:
    """Print the tables."""
    what = "Jobs of one one-GPU pod" if options.jobs else "one-GPU pods"
    print(f"{options.pods} {what} on {options.nodes} nodes x 8 GPUs, {options.connections} connections,")
    print(f"{options.teams} teams, {options.replicas} replicas, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    stock = [reading.bound_seconds for reading in readings["stock"]]
    table(["", "created, s", "bound, s", "rate to stock"])
    for name, rounds in readings.items():
        ratios = [base / reading.bound_seconds for base, reading in zip(stock, rounds, strict=True)]
        times = [[getattr(reading, part) for reading in rounds] for part in ("created_seconds", "bound_seconds")]
        row([name, *map(spread, [*times, ratios])])
    table(["CPU ms a pod", *PROCESSES, "all"])
    for name, rounds in readings.items():
        parts = [[reading.milliseconds[part] for reading in rounds] for part in PROCESSES]
        row([name, *map(spread, [*parts, [sum(reading.milliseconds.values()) for reading in rounds]])])
    table(["bytes of a pod", *POD_BYTES])
    for name, rounds in readings.items():
        row([name, *(f"{statistics.median(reading.bytes[form] for reading in rounds):.0f}" for form in POD_BYTES)])
    ours, base = (
        statistics.median(reading.milliseconds["API server"] for reading in readings[name])
        for name in ("fairgate", "stock")
    )
    print(f"\nAPI server CPU per pod, fairgate to stock: {ours / base:.2f}")


def table(names: list[str]) -> None:
    """Print the head of a table."""
    print()
    row(names)
    row(["---"] * len(names))


def row(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("--jobs", action="store_true", help="create each pod by a Job of its own")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--teams", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    build.ensure(CONTROL_PLANE)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane())
        make_nodes(cluster, options.nodes, gpus=8, timeout=600)
        limit = options.pods
        is_direct = options.replicas == 1
        running = stack.enter_context(
            replicas(cluster, options.replicas, teams=options.teams, limit=limit, is_direct=is_direct)
        )
        report(compare(cluster, running, options), options)


if __name__ == "__main__":
    main()
