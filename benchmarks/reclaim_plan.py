"""Processor time of a victim plan by itself, and its victims: no API, no cluster, every GPU borrowed.

Run it from the repository's root: `python benchmarks/reclaim_plan.py`. `--works`:
`sizes`  `--nodes` nodes of 8 GPUs full of borrowing pods, and plans for one waiting pod of each size, and for many at
         once. `build` is the cost of the first list.
`exact`  the fixture by which KAI-Scheduler measures over-eviction: N nodes of 8 GPUs, all borrowed by pods of one GPU
         that started together, and a pod of 8; and what follows from it: borrowers of several sizes, two waiting pods,
         a waiting gang of 16, borrowers in gangs. `fewest` is the fewest evictions that there can be.
`joint`  2 to 8 pods of several sizes wait at once, by themselves or as a gang, in small clusters that a draw filled;
         `--gangs` of the borrowers are in gangs. What they get if they are planned for together, and one after the
         other: pods served, victims, gangs of others that are broken.

The figures of docs/benchmarks.md are those of
    python benchmarks/reclaim_plan.py --works sizes --nodes 5000
    python benchmarks/reclaim_plan.py --works exact
    python benchmarks/reclaim_plan.py --works joint --gangs 0.3
"""

import argparse
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    UNLIMITED,
    GangId,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
)
from webhook.core.model.demand import Demand, demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import BUILT_IN_RESOURCES, Policy, Share, Team
from webhook.core.reclaim import reclaim
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.snapshot import pods_within_share, take_snapshot
from webhook.core.reclaim.victims import FailureBudget, VictimCost, WorkloadId
from webhook.core.world.world import World

GPU = ResourceName("nvidia.com/gpu")
GIB = 1 << 30
NOW = 1_800_000_000
LENDER, BORROWER = TeamName("lender"), TeamName("borrower")
SIZES = (1, 2, 4, 8)
JOB_LIMIT = 6


def demand(gpus: int) -> Demand:
    """A pod's demand, with usual amounts of cpu and memory."""
    return demand_of({CPU: 4000 * gpus, MEMORY: 32 * GIB * gpus, PODS: 1, GPU: gpus}, BUILT_IN_RESOURCES)


def reclaim_pod(name: str, team: TeamName, tier: str, gpus: int, *, on: str = "", created: int = 0) -> ReclaimPod:
    """A pod of the reclaim index."""
    node = NodeName(on) if on else None
    pod = Resident(
        Uid(name), Namespace(team), name, demand(gpus), node, None, team_label=team, tier_label=tier, created=created
    )
    return ReclaimPod(pod, started_at=created)


def policy_for(nodes: int) -> Policy:
    """A team that borrows, and one whose share is all GPUs."""
    share = Share(guaranteed=nodes * 8 * ONE_GPU, limit=UNLIMITED)
    teams = (
        Team(BORROWER, namespaces=(BORROWER,), gpus=Share(0, UNLIMITED)),
        Team(LENDER, namespaces=(LENDER,), gpus=share),
    )
    return Policy(teams=teams, hash="bench")


def add_nodes(world: World, count: int) -> None:
    """Add nodes of 8 GPUs."""
    for number in range(count):
        room = {CPU: 128_000, MEMORY: 2048 * GIB, PODS: 110, GPU: 8}
        world.set_node(Node(NodeName(f"node-{number:05}"), room))
    world.sort_nodes()


def build(options: argparse.Namespace) -> tuple[ReclaimIndex, World]:
    """Fill a cluster with borrowers: single pods, gangs of eight across four nodes, Jobs with few failures left."""
    dice = random.Random(options.seed)
    policy = policy_for(options.nodes)
    world, reclaim_index = World(policy), ReclaimIndex(policy.reclaim)
    add_nodes(world, options.nodes)
    for number in range(options.nodes):
        for place in range(8):
            gang = GangId(f"gang-{number // 4}-{place}") if dice.random() < options.gangs else None
            started = NOW - dice.randrange(100, 86_400)
            made = reclaim_pod(
                f"a-{number}-{place}", BORROWER, "preemptible", 1, on=f"node-{number:05}", created=started
            )
            job = WorkloadId(f"job-{number // 5}") if gang is None and dice.random() < options.jobs else None
            if job is not None:
                reclaim_index.set_failure_budget(job, FailureBudget(JOB_LIMIT))
            made = replace(made, goes_with=gang, workload=job)
            take(made, reclaim_index, world)
    return reclaim_index, world


def take(made: ReclaimPod, reclaim_index: ReclaimIndex, world: World) -> None:
    """Add a pod to both."""
    world.set_pod(made.pod)
    reclaim_index.set(made)


def borrowed(nodes: int, layout: str) -> tuple[ReclaimIndex, World]:
    """Fill a cluster: pods of one GPU or of several sizes, or gangs of eight pods, each on one node or on eight."""
    policy = policy_for(nodes)
    world, reclaim_index = World(policy), ReclaimIndex(policy.reclaim)
    add_nodes(world, nodes)
    for number in range(nodes):
        for place, gpus in enumerate((4, 2, 1, 1) if layout == "mixed" and number % 2 else (1,) * 8):
            name, on = f"a-{number}-{place}", f"node-{number:05}"
            made = reclaim_pod(name, BORROWER, "preemptible", gpus, on=on, created=NOW - 3600)
            gang = {"gangs": f"{number}", "across": f"{number // 8}-{place}"}.get(layout)
            take(replace(made, goes_with=None if gang is None else GangId(gang)), reclaim_index, world)
    return reclaim_index, world


LADDER: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def exact(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Plan for the fixture at each size, and for its variations at the last."""
    for nodes in LADDER:
        yield {"nodes": nodes, **measure(*borrowed(nodes, "one"), options, gpus=8, count=1), "fewest": 8}
    for layout, count, gang, fewest in (
        ("mixed", 1, None, 4),
        ("one", 2, None, 16),
        ("one", 16, "b", 128),
        ("gangs", 16, "b", 128),
        ("across", 1, None, 64),
        ("across", 8, "b", 64),
    ):
        found = measure(*borrowed(LADDER[-1], layout), options, gpus=8, count=count, gang=gang)
        yield {"nodes": LADDER[-1], "borrowers": layout, "gang": gang is not None, **found, "fewest": fewest}


def measure(
    reclaim_index: ReclaimIndex,
    world: World,
    options: argparse.Namespace,
    *,
    gpus: int,
    count: int,
    gang: str | None = None,
) -> dict[str, Any]:
    """Plan for pods of one size, and remove them again."""
    names = [f"b-{gpus}-{number:03}" for number in range(count)]
    for number, name in enumerate(names):
        made = reclaim_pod(name, LENDER, "guaranteed", gpus, created=NOW + number)
        take(replace(made, gang=None if gang is None else GangId(gang)), reclaim_index, world)
    times = []
    found = Round((), ())
    for _ in range(options.rounds):
        began = time.process_time()
        found = plan(pods_within_share(reclaim_index, world), take_snapshot(reclaim_index, world, now=NOW))
        times.append((time.process_time() - began) * 1000)
    for name in names:
        world.remove_pod(Uid(name))
        reclaim_index.remove(Uid(name))
    return {
        "pods": count,
        "gpus_each": gpus,
        "victims": sum(len(move.victims) for move in found.moves),
        "placed": len(found.moves),
        "first_ms": round(times[0], 2),
        "median_ms": round(statistics.median(times), 2),
        "max_ms": round(max(times), 2),
    }


def sizes(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Plan for a pod of each size, and for many."""
    began = time.perf_counter()
    reclaim_index, world = build(options)
    seconds = round(time.perf_counter() - began, 2)
    yield {"nodes": options.nodes, "victims": len(reclaim_index.victim_index), "build_seconds": seconds}
    for size in SIZES:
        yield measure(reclaim_index, world, options, gpus=size, count=1)
    yield measure(reclaim_index, world, options, gpus=1, count=options.many)


DRAWS: Final = {4: 60, 16: 60, 64: 30}
"""Nodes, and how many clusters of so many are drawn."""


def joint(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Plan for several pods together, and one after the other, in the same clusters."""
    together = reclaim.plan_together
    for nodes, draws in DRAWS.items():
        for is_gang in (False, True):
            totals = {"together": Counter[str](), "in turn": Counter[str]()}
            for draw in range(draws):
                drawn = drawn_cluster(random.Random(f"{options.seed} {nodes} {draw}"), nodes, options.gangs, is_gang)
                for way, function in (("together", together), ("in turn", lambda outcomes, *_, **__: outcomes)):
                    reclaim.plan_together = function  # type: ignore[assignment]
                    totals[way].update(counts(*drawn))
            for way, total in totals.items():
                yield {"nodes": nodes, "waits as a gang": is_gang, "planned": way, **total}
    reclaim.plan_together = together


def counts(reclaim_index: ReclaimIndex, world: World) -> dict[str, int]:
    """Plan once and count."""
    found = plan(pods_within_share(reclaim_index, world), take_snapshot(reclaim_index, world, now=NOW))
    victims = {each.uid for move in found.moves for each in move.victims}
    cost = VictimCost.total(move.cost for move in found.moves)
    return {"served": len(found.moves), "victims": len(victims), "gangs": cost.gangs}


def drawn_cluster(dice: random.Random, nodes: int, gangs: float, is_gang: bool) -> tuple[ReclaimIndex, World]:
    """Draw a full cluster, in which a third of the nodes have a pod that stays, and pods that wait."""
    policy = policy_for(nodes)
    world, reclaim_index = World(policy), ReclaimIndex(policy.reclaim)
    add_nodes(world, nodes)
    for number in range(nodes):
        left, on = 8, f"node-{number:05}"
        if dice.random() < 1 / 3:
            left -= (gpus := dice.choice((1, 2, 4)))
            take(
                reclaim_pod(f"c-{number}", LENDER, "guaranteed", gpus, on=on, created=NOW - 90_000),
                reclaim_index,
                world,
            )
        for place in range(8):
            if left:
                left -= (gpus := dice.choice([size for size in (1, *SIZES) if size <= left]))
                gang = GangId(f"{number // 4}-{place % 3}") if dice.random() < gangs else None
                created = NOW - dice.randrange(1000, 86_400)
                made = reclaim_pod(f"a-{number}-{place}", BORROWER, "preemptible", gpus, on=on, created=created)
                take(replace(made, goes_with=gang), reclaim_index, world)
    for number in range(dice.choice((2, 3, 4, 8))):
        made = reclaim_pod(f"b-{number}", LENDER, "guaranteed", dice.choice(SIZES), created=NOW + number)
        take(replace(made, gang=GangId("b") if is_gang else None), reclaim_index, world)
    return reclaim_index, world


def main() -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", choices=("sizes", "exact", "joint"), default=("sizes", "exact"))
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of 8 GPUs; the goal is stated for 5000")
    parser.add_argument("--gangs", type=float, default=0.2, help="share of the borrowing pods that belong to gangs")
    parser.add_argument("--jobs", type=float, default=0.2, help="share of the others that belong to Jobs with a limit")
    parser.add_argument("--many", type=int, default=200, help="pods of one GPU that wait at once")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    works = {"sizes": sizes, "exact": exact, "joint": joint}
    for row in chain.from_iterable(works[work](options) for work in options.works):
        print(json.dumps(row) if options.output == "json" else "  ".join(f"{name} {row[name]}" for name in row))


if __name__ == "__main__":
    main()
