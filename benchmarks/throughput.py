"""Pods from first create to all bound, with and without Fairgate, in one run on a separate control plane.

`stock`     kube-apiserver and kube-scheduler alone;
`fairgate`  the same with Fairgate's webhooks, one busy team or several, one replica or several.
Rounds alternate. Prints a Markdown table: seconds, rate against stock, and CPU per pod of the API server, the scheduler
and Fairgate. Run it from the repository's root: `python benchmarks/throughput.py --nodes 500 --pods 4000 --rounds 3`.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass

from clusters.load import clear, cpu_of, create, spread, wait_bound

from tests.chaos.replicas import Replicas, replicas
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_namespace, make_nodes


@dataclass(frozen=True, slots=True)
class Reading:
    """One round: seconds to the last answer and to the last binding, and CPU milliseconds a pod."""

    created_seconds: float
    bound_seconds: float
    api_ms: float
    scheduler_ms: float
    fairgate_ms: float


def measure(cluster: ControlPlane, namespaces: list[str], *, prefix: str, options: argparse.Namespace) -> Reading:
    """Create all pods, wait until the last one is bound, and clean up."""
    with (
        cpu_of(cluster, lambda name: name == "kube-apiserver") as api,
        cpu_of(cluster, lambda name: name == "kube-scheduler") as scheduler,
        cpu_of(cluster, lambda name: name.startswith("replicas-") and name[-1].isdigit()) as fairgate,
    ):
        started = time.perf_counter()
        made = asyncio.run(create(cluster, namespaces, options.pods, prefix=prefix, connections=options.connections))
        if failures := made.failures():
            raise SystemExit(f"{prefix}: {len(failures)} of {options.pods} creations failed, one with: {failures[0]}")
        bound = wait_bound(cluster, namespaces, options.pods) - started
        used = [spent() * 1000 / options.pods for spent in (api, scheduler, fairgate)]
    clear(cluster, namespaces)
    return Reading(made.seconds, bound, *used)


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
            namespaces = stock if name == "stock" else ours
            readings[name].append(measure(cluster, namespaces, prefix=f"{name}-{number}", options=options))
    return readings


def report(readings: dict[str, list[Reading]], options: argparse.Namespace) -> None:
    """Print the table."""
    print(f"{options.pods} one-GPU pods on {options.nodes} nodes x 8 GPUs, {options.connections} connections, ")
    print(
        f"{options.teams} teams, {options.replicas} replicas, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}\n"
    )
    print("| | created, s | bound, s | rate to stock | API server, CPU ms/pod | scheduler | Fairgate |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    stock = [reading.bound_seconds for reading in readings["stock"]]
    for name, rounds in readings.items():
        ratios = [base / reading.bound_seconds for base, reading in zip(stock, rounds, strict=True)]
        cells = [
            spread([getattr(reading, part) for reading in rounds])
            for part in ("created_seconds", "bound_seconds", "api_ms", "scheduler_ms", "fairgate_ms")
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} | {spread(ratios)} | {' | '.join(cells[2:])} |")
    api = [statistics.median(reading.api_ms for reading in readings[name]) for name in ("fairgate", "stock")]
    print(f"\nAPI server CPU per pod, fairgate to stock: {api[0] / api[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pods", type=int, default=400)
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
        running = stack.enter_context(replicas(cluster, options.replicas, teams=options.teams, limit=limit))
        report(compare(cluster, running, options), options)


if __name__ == "__main__":
    main()
