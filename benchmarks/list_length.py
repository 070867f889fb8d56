"""How many nodes a pod should list: what each name costs in all processes, and how many pods it saves.

`--works`:
`price`    on a separate control plane, per length and for bare pods and pods of Jobs: the CPU of each process and the
           bytes of a pod, as in throughput.py, beside rounds without webhooks;
`stranded` without a cluster, per length: pods are admitted to a fleet in use, then nodes are lost before they are
           bound, and a model of kube-scheduler places them. A pod is stranded if none of its nodes has room and
           another node has. Losses: the first choice of a pod; the sixteen neighbors by name around it; 5 % of all
           nodes at random. Fallbacks are the next best nodes (`near`), or the next best one and distant ones (`far`).
Run it from the repository's root: `python benchmarks/list_length.py --works stranded --trials 100`.

The figures of docs/adr/0003-node-list.md are those of
    python benchmarks/list_length.py --works stranded --trials 100
"""

import argparse
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from clusters.listing import fairgate_with_lists_of
from throughput import PROCESSES, Reading, measure, row, table

from tests.chaos.replicas import Replicas, replicas
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for
from tests.core.support import make
from webhook.core.admission import node_choice
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.decision import Admit
from webhook.core.world.world import World

GPUS = 8
RACK = 16
PREFERRED = 2
SIZES = (1, 1, 2, 1, 4, 1, 2, 8)
"""Most pods are small, as in the traces of real clusters."""

LOSSES = ("a node", "a rack", "5 %")
LOSSES_OF_EACH_BURST = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """An admitted pod that is not bound yet."""

    gpus: int
    nodes: tuple[NodeName, ...]


@dataclass(slots=True)
class Tally:
    """Pods whose first node was lost, and pods that no listed node can take."""

    losses: int = 0
    hit: int = 0
    stranded: int = 0

    def add(self, *, hit: int, stranded: int) -> None:
        self.losses += 1
        self.hit += hit
        self.stranded += stranded


def put(world: World, gpus: int, uid: str) -> Listed | None:
    """Admit a pod and charge it on its first node; None where it waits."""
    pod = make.pod(gpus, name=uid, uid=Uid(uid))
    decision = admit(pod, make.ALICE, world)
    if not isinstance(decision, Admit) or not decision.node_choice.nodes:
        return None
    nodes = decision.node_choice.nodes
    make.commit(world, pod, decision.charge, nodes[0])
    return Listed(gpus, nodes)


def used_world(count: int, filled: float, dice: random.Random) -> World:
    """Return nodes with so much of their GPUs in use, some of them given back by pods that ended."""
    limit = count * GPUS * 10
    world = make.world(
        make.policy(make.team(guaranteed=limit, limit_=limit)),
        [make.node(f"node-{number:05}", gpus=GPUS, cpu=96_000) for number in range(count)],
    )
    world.sort_nodes()
    running: list[tuple[str, int]] = []
    used = 0
    while used < count * GPUS * min(0.98, filled + 0.15):
        uid = f"used-{len(running)}"
        if (made := put(world, dice.choice(SIZES), uid)) is not None:
            running.append((uid, made.gpus))
            used += made.gpus
    dice.shuffle(running)
    while used > count * GPUS * filled:
        uid, gpus = running.pop()
        world.remove_pod(Uid(uid))
        used -= gpus
    return world


def burst(world: World, pods: int, dice: random.Random) -> list[Listed]:
    """Admit pods one after the other, and take them back."""
    made = [put(world, dice.choice(SIZES), f"burst-{number}") for number in range(pods)]
    for number in range(pods):
        world.remove_pod(Uid(f"burst-{number}"))
    return [listed for listed in made if listed is not None]


def lost(what: str, pods: list[Listed], names: list[NodeName], dice: random.Random) -> set[NodeName]:
    """Choose the nodes to lose."""
    if what == "5 %":
        return set(dice.sample(names, len(names) // 20))
    first = dice.choice(pods).nodes[0]
    if what == "a node":
        return {first}
    start = names.index(first) // RACK * RACK
    return set(names[start : start + RACK])


def stranded(pods: list[Listed], free: dict[NodeName, int], gone: set[NodeName]) -> int:
    """Bind pods in their order as kube-scheduler does; return how many have no node, though another has room."""
    free = free | dict.fromkeys(gone, -1)
    left: list[int] = []
    for pod in pods:
        able = [name for name in pod.nodes if free[name] >= pod.gpus]
        best = next((name for name in pod.nodes[:PREFERRED] if name in able), None)
        if able:
            free[best or max(able, key=lambda name: free[name])] -= pod.gpus
        else:
            left.append(pod.gpus)
    found = 0
    for gpus in sorted(left):
        roomy = max(free, key=lambda name: free[name])
        if free[roomy] >= gpus:
            free[roomy] -= gpus
            found += 1
    return found


def stranding(options: argparse.Namespace, filled: float, pods: int) -> dict[tuple[str, int], dict[str, Tally]]:
    """Return the tallies of each length and kind of fallbacks."""
    tallies: dict[tuple[str, int], dict[str, Tally]] = defaultdict(lambda: {what: Tally() for what in LOSSES})
    for trial in range(options.trials):
        world = used_world(options.nodes, filled, random.Random(trial))
        free = {node.name: world.fleet.free(node.name, make.GPU) for node in world.fleet.nodes()}
        names = list(free)
        for kind, length in [(kind, length) for kind in options.fallbacks for length in options.lengths]:
            node_choice.LISTED_NODES = length
            node_choice._RANKED = min(length, 2 if kind == "far" else length)
            listed = burst(world, pods, random.Random(trial))
            dice = random.Random(trial)
            for what in LOSSES * LOSSES_OF_EACH_BURST:
                gone = lost(what, listed, names, dice)
                hit = sum(pod.nodes[0] in gone for pod in listed)
                tallies[kind, length][what].add(hit=hit, stranded=stranded(listed, free, gone))
    return tallies


def report_stranding(options: argparse.Namespace) -> None:
    for filled in options.filled:
        for pods in options.waiting:
            tallies = stranding(options, filled, pods)
            events = options.trials * LOSSES_OF_EACH_BURST
            print(f"\n{pods} pods waiting, {options.nodes} nodes {filled:.0%} full, {events} losses of each kind")
            table(["fallbacks", "nodes", *(f"lost: {what}: pods hit" for what in LOSSES), *LOSSES])
            for (kind, length), found in tallies.items():
                hit = [f"{found[what].hit / found[what].losses:.1f}" for what in LOSSES]
                row([kind, str(length), *hit, *(f"{found[what].stranded / found[what].losses:.2f}" for what in LOSSES)])


def prices(cluster: ControlPlane, running: Replicas, options: argparse.Namespace) -> Iterator[tuple[str, Reading]]:
    """Yield a round of each length, and one without webhooks; the order turns from round to round."""
    stock, ours = [make_namespace(cluster, "stock")], [team.namespace for team in running.teams]
    for number in range(options.rounds):
        for length in [0, *options.lengths] if number % 2 == 0 else [*reversed(options.lengths), 0]:
            if length:
                running.stop(0)
                running.program = fairgate_with_lists_of(length)
                running.start(0)
                running.register()
                wait_for(cluster, lambda: not any(running.charged(0).values()), what="no GPU is charged", timeout=120)
            else:
                running.unregister()
            namespaces = ours if length else stock
            yield str(length or "stock"), measure(cluster, namespaces, prefix=f"l{length}-{number}", options=options)


def report_prices(options: argparse.Namespace) -> None:
    found: dict[str, list[Reading]] = defaultdict(list)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane())
        make_nodes(cluster, options.nodes, gpus=GPUS, timeout=600)
        running = stack.enter_context(replicas(cluster, 1, teams=1, limit=options.pods))
        for name, reading in prices(cluster, running, options):
            found[name].append(reading)
    what = "Jobs of one pod" if options.jobs else "bare pods"
    print(f"\n{options.pods} {what}, {options.nodes} nodes, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    table(["nodes", "bound, s", *(f"{part}, CPU ms a pod" for part in PROCESSES), "JSON bytes", "protobuf bytes"])
    for name, rounds in sorted(found.items(), key=lambda each: (each[0] != "stock", len(each[0]), each[0])):
        parts = [[reading.milliseconds[part] for reading in rounds] for part in PROCESSES]
        sizes = [[reading.bytes[form] for reading in rounds] for form in rounds[0].bytes]
        values = [[reading.bound_seconds for reading in rounds], *parts]
        cells = [f"{statistics.median(each):.2f}" for each in values]
        row([name, *cells, *(f"{statistics.median(each):.0f}" for each in sizes)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=["price", "stranded"], choices=("price", "stranded"))
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 2, 3, 4, 8, 32])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=1200, help="price: pods of each round")
    parser.add_argument("--jobs", action="store_true", help="price: create each pod by a Job of its own")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=20, help="stranded: fleets")
    parser.add_argument("--waiting", type=int, nargs="+", default=[20, 200], help="stranded: pods not bound yet")
    parser.add_argument("--filled", type=float, nargs="+", default=[0.5, 0.85])
    parser.add_argument("--fallbacks", nargs="+", default=["near", "far"], choices=("near", "far"))
    options = parser.parse_args()
    if "stranded" in options.works:
        report_stranding(options)
    if "price" in options.works:
        build.ensure(CONTROL_PLANE)
        report_prices(options)


if __name__ == "__main__":
    main()
