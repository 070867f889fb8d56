"""Time of one decision, bytes in to bytes out, by number of nodes.

A decision is one full call of /mutate without network and event loop: decode, translate, judge, place, patch, encode.
It is compared with `json.loads` of the same 9.5 KB body, alternating in the same run, because machines differ and
drift. Ten pods run on each node; before each decision one pod ends and another is created, so that no cached answer
applies.

The figures of docs/benchmarks.md are those of
    python benchmarks/decide.py --calls 3000
"""

import argparse
import gc
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.realistic import realistic_review
from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    Namespace,
    NodeName,
    PoolName,
    ResourceName,
    TeamName,
    Uid,
)
from webhook.core.model.constraints import NO_CONSTRAINTS, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand, demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import BUILT_IN_RESOURCES, PlacementRules, Policy, Pool, Share, Team
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import World
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

GPU = ResourceName("nvidia.com/gpu")
GIB = 1 << 30
SHAPES = [(1, 6000, 48), (1, 4000, 16), (2, 12_000, 96), (4, 24_000, 192), (8, 48_000, 384)]
POD_ON_NODE = (0, 1000, 4)  # most of a node's ten pods are small services; GPUs are scarce


@dataclass(frozen=True, slots=True)
class Spread:
    """The nanoseconds of many single calls."""

    samples: list[int]

    @property
    def p50(self) -> float:
        return statistics.median(self.samples) / 1000

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.samples, n=100)[98] / 1000


def shape(gpus: int, cpu: int, memory_gib: int) -> Demand:
    return demand_of({GPU: gpus, CPU: cpu, MEMORY: memory_gib * GIB, PODS: 1}, BUILT_IN_RESOURCES)


def policy() -> Policy:
    teams = tuple(
        Team(TeamName(name), (name,), gpus=Share(200_000 * ONE_GPU, 400_000 * ONE_GPU)) for name in ("vision", "nlp")
    )
    return Policy(teams=teams, pools=(Pool(PoolName("gpu")),), placement=PlacementRules(keep_whole=1), hash="benchmark")


def crowded_world(nodes: int, rng: random.Random) -> World:
    """Nodes of eight GPUs, ten pods on each, about seventy percent of the GPUs taken."""
    world = World(policy())
    numbers = iter(range(10**9))

    def put(node: str, taken: Demand) -> None:
        uid = Uid(f"r{next(numbers)}")
        world.set_pod(Resident(uid, Namespace("nlp"), uid, taken, NodeName(node), None, "nlp", Tier.GUARANTEED))

    for i in range(nodes):
        name = f"node-{i:05}"
        world.set_node(Node(NodeName(name), {CPU: 96_000, MEMORY: 768 * GIB, GPU: 8, PODS: 110}))
        free = 8
        for _ in range(10):
            wanted = (
                shape(
                    *rng.choice(SHAPES[:3]),
                )
                if free and rng.random() < 0.6
                else shape(*POD_ON_NODE)
            )
            gpus = wanted.gpus // ONE_GPU
            wanted = wanted if gpus <= free else shape(*POD_ON_NODE)
            free -= wanted.gpus // ONE_GPU
            put(name, wanted)
    world.sort_nodes()
    return world


def timed(call: Callable[[], object]) -> int:
    before = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - before


def churn(world: World, rng: random.Random, uids: list[Uid], count: int) -> None:
    """End one assumed pod and add another, outside the measured time."""
    if len(uids) > 200:
        world.remove_pod(uids.pop(rng.randrange(len(uids))))
    wanted = shape(*rng.choice(SHAPES))
    nodes = best_nodes(world.fleet, wanted, world.fleet.matching(NO_CONSTRAINTS), count=1)
    if nodes:
        uid = Uid(f"c{count}")
        pod = Resident(uid, Namespace("vision"), uid, wanted, None, None, "vision", Tier.GUARANTEED)
        world.add_pod(InFlightCharge(pod, Charge(TeamName("vision"), Tier.GUARANTEED, wanted.gpus), nodes[0]))
        uids.append(uid)


def decisions(nodes: int, *, calls: int, seed: int) -> tuple[Spread, Spread]:
    """Time whole decisions and json.loads of the same bodies in turn."""
    rng = random.Random(seed)
    world = crowded_world(nodes, rng)
    ledger = MemoryLedger(world, time.monotonic)
    reviewer = AdmissionReviewer(world, ledger, now_text=lambda: "2026-01-01T00:00:00Z")
    bodies = [realistic_review(gpus=rng.choice((1, 2, 4)), index=i) for i in range(64)]
    uids: list[Uid] = []
    decided, loaded = [], []
    gc.collect()
    gc.freeze()
    for i in range(calls + 500):
        churn(world, rng, uids, i)
        body = bodies[i % len(bodies)]
        calls_in_turn = [lambda: reviewer.mutate(body), lambda: json.loads(body)]  # noqa: B023 - called at once
        times = [0, 0]
        for which in (i % 2, 1 - i % 2):  # the second call finds the body in the CPU cache: alternate
            times[which] = timed(calls_in_turn[which])
        if i >= 500:
            decided.append(times[0])
            loaded.append(times[1])
    assert b'"patch"' in reviewer.mutate(bodies[0]).body, "the benchmark must measure admitted pods"
    gc.unfreeze()
    return Spread(decided), Spread(loaded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {platform.machine()}, ")
    print(f"body {len(realistic_review())} bytes, {options.calls} calls, microseconds\n")
    print("| nodes | decision p50 | p99 | json.loads p50 | p99 | ratio p50 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for nodes in (100, 1000, 5000):
        decided, loaded = decisions(nodes, calls=options.calls, seed=options.seed)
        ratio = decided.p50 / loaded.p50
        times = f"{decided.p50:.1f} | {decided.p99:.1f} | {loaded.p50:.1f} | {loaded.p99:.1f}"
        print(f"| {nodes:,} | {times} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
