"""How often kube-scheduler binds a pod to Fairgate's choice, by placement.mode, and the scheduler's CPU per pod.

A real kube-apiserver and kube-scheduler with its default scores, KWOK, `fairgate serve`; nodes and pods differ as
described in clusters/affinity.py. `--works`:
`modes`    per size and mode: pods bound to the first node of their decision, to any of its nodes, to none at the end,
           and the scheduler's CPU per pod; also per pod shape;
`lengths`  per length of the list: pods are created while the scheduler is paused, then nodes are removed (half of all
           at random; every first choice; a row of sixteen neighbors), then it continues: which pods wait.
Run it from the repository's root: `python benchmarks/affinity.py --nodes 100 500 2000`.

The figures of docs/benchmarks.md are those of
    python benchmarks/affinity.py --works modes --nodes 100 500 2000 --pods 400 --shapes Job Deployment bare StatefulSet
"""

import argparse
import asyncio
import dataclasses
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from clusters.affinity import SHAPE, SHAPES, clear, create_all, make_cluster, orders, set_cordoned
from clusters.listing import fairgate_with_lists_of
from clusters.load import cpu_of

from tests.builders import decision_of
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import SCHEDULER
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import list_pods, wait_for
from tests.scenarios.serving import FAIRGATE
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate

ROW = 16

STILL_SECONDS = 8.0
"""Without a new binding for this long no more follow: kube-scheduler's backoff is shorter."""


@dataclass(frozen=True, slots=True)
class Fate:
    """The nodes chosen for a pod, and the node it was bound to."""

    shape: str
    mode: str
    chosen: tuple[str, ...]
    node: str | None

    @property
    def is_first(self) -> bool:
        return self.node is not None and self.chosen[:1] == (self.node,)

    @property
    def is_listed(self) -> bool:
        return self.node in self.chosen


def fates(cluster: ControlPlane, namespace: str) -> list[Fate]:
    """Return the decision and the binding of every pod of the namespace."""
    found = []
    for each in list_pods(cluster, namespace, resourceVersion="0"):
        decision = decision_of(each)
        shape = each["metadata"]["labels"][SHAPE]
        found.append(Fate(shape, decision["mode"], tuple(decision["nodes"]), each["spec"].get("nodeName")))
    return found


def settled(cluster: ControlPlane, namespace: str, pods: int) -> tuple[list[Fate], float]:
    """Wait until all pods are bound or bindings stop; return the results, and the seconds of the last binding."""
    began = last = time.perf_counter()
    bound = -1
    while True:
        found = fates(cluster, namespace)
        now, known = time.perf_counter(), sum(fate.node is not None for fate in found)
        if known != bound:
            bound, last = known, now
        if bound == pods or (len(found) >= pods and now - last > STILL_SECONDS) or now - began > 900:
            return found, last - began
        time.sleep(0.5)


def set_mode(running: FairgateServer, mode: str) -> None:
    """Change the policy and wait until it is in force."""
    (running.policy / "mode.yaml").write_text(
        f"apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nplacement: {{mode: {mode}}}\n"
    )
    probe = orders(running.team_a, 1, prefix="probe")[0]

    def is_in_force() -> bool:
        created = running.cluster.api.create(
            f"/api/v1/namespaces/{running.team_a}/pods",
            {**probe.body["spec"]["template"], "metadata": {"name": "probe"}, "kind": "Pod", "apiVersion": "v1"},
            dryRun="All",
        )
        return decision_of(created)["mode"] == mode

    wait_for(running.cluster, is_in_force, what=f"mode {mode} in force")


def share(found: list[Fate], attribute: str) -> float | None:
    """The percentage of pods with chosen nodes for which this is true; None without such pods."""
    with_choice = [fate for fate in found if fate.chosen]
    return (
        round(100 * sum(getattr(fate, attribute) for fate in with_choice) / len(with_choice), 1)
        if with_choice
        else None
    )


def summary(found: list[Fate]) -> dict[str, Any]:
    return {
        "pods": len(found),
        "no_choice": sum(not fate.chosen for fate in found),
        "first_percent": share(found, "is_first"),
        "listed_percent": share(found, "is_listed"),
        "pending": sum(fate.node is None for fate in found),
        "nodes_used": len({fate.node for fate in found} - {None}),
    }


def modes(running: FairgateServer, options: argparse.Namespace, nodes: int) -> Iterator[dict[str, Any]]:
    """Fill the cluster once per mode."""
    cluster, namespace = running.cluster, running.team_a
    for mode in options.modes:
        set_mode(running, mode)
        wanted = orders(namespace, options.pods, prefix=mode, shapes=options.shapes)
        pods = sum(order.pods for order in wanted)
        with cpu_of(cluster, lambda name: name == SCHEDULER) as scheduler:
            asyncio.run(create_all(cluster, wanted))
            found, seconds = settled(cluster, namespace, pods)
            spent = scheduler() * 1000 / pods
        shapes = sorted({fate.shape for fate in found})
        yield {
            "work": "modes",
            "nodes": nodes,
            "mode": mode,
            **summary(found),
            "scheduler_ms": round(spent, 2),
            "seconds": round(seconds, 1),
            "shapes": {shape: summary([fate for fate in found if fate.shape == shape]) for shape in shapes},
        }
        clear(cluster, namespace)


def lost(losses: str, found: list[Fate], names: list[str], seed: int) -> list[str]:
    """Choose the nodes to remove."""
    if losses == "half":
        return random.Random(seed).sample(names, len(names) // 2)
    if losses == "firsts":
        return sorted({fate.chosen[0] for fate in found if fate.chosen})
    start = names.index(min(fate.chosen[0] for fate in found if fate.chosen))
    return names[start : start + ROW]


def lengths(running: FairgateServer, options: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    """Create pods with lists of each length, and remove nodes before they are bound."""
    cluster, namespace = running.cluster, running.team_a
    for length in options.lengths:
        listing = with_lists_of(running, length)
        try:
            for losses in options.losses:
                cluster.stop(SCHEDULER)
                wanted = orders(namespace, options.pods, prefix=f"l{length}-{losses}", shapes=("Job", "bare"))
                pods = sum(order.pods for order in wanted)
                asyncio.run(create_all(cluster, wanted))
                wait_for(cluster, lambda pods=pods: len(list_pods(cluster, namespace)) == pods, what="all pods")
                gone = lost(losses, fates(cluster, namespace), names, options.seed)
                set_cordoned(cluster, gone, is_cordoned=True)
                cluster.start(SCHEDULER)
                found, _ = settled(cluster, namespace, pods)
                owned, bare = ([f for f in found if (f.shape == "bare") is is_bare] for is_bare in (False, True))
                yield {
                    "work": "lengths",
                    "nodes": len(names),
                    "length": length,
                    "lost": losses,
                    "lost_nodes": len(gone),
                    "pods": pods,
                    "owned_pending": sum(fate.node is None for fate in owned),
                    "bare_pending": sum(fate.node is None for fate in bare),
                }
                set_cordoned(cluster, gone, is_cordoned=False)
                clear(cluster, namespace)
        finally:
            listing.stop()


def with_lists_of(running: FairgateServer, length: int) -> FairgateServer:
    """Restart the server with lists of this length for all pods."""
    running.stop()
    replica = running.replicas[0]
    command = (*fairgate_with_lists_of(length), *replica.command[len(FAIRGATE) :])
    listing = dataclasses.replace(running, replicas=(dataclasses.replace(replica, command=command),))
    listing.start()
    return listing


def as_text(found: dict[str, Any]) -> str:
    """Format a result in one line, plus one line per shape."""
    lines = [found, *({"  shape": shape, **values} for shape, values in found.pop("shapes", {}).items())]
    return "\n".join("  ".join(f"{name} {value}" for name, value in line.items()) for line in lines)


def main() -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=["modes", "lengths"], choices=("modes", "lengths"))
    parser.add_argument("--nodes", type=int, nargs="+", default=[100])
    parser.add_argument("--pods", type=int, default=300, help="about how many pods to create at once")
    parser.add_argument("--modes", nargs="+", default=["auto", "require", "prefer", "off"])
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--losses", nargs="+", default=["half", "firsts", "row"], choices=("half", "firsts", "row"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    build.ensure(CONTROL_PLANE)
    for nodes in options.nodes:
        with ExitStack() as stack:
            cluster = stack.enter_context(ControlPlane())
            names = make_cluster(cluster, nodes, seed=options.seed)
            running = stack.enter_context(serve_fairgate(cluster, limit_a="unlimited"))
            for work in options.works:
                for found in modes(running, options, nodes) if work == "modes" else lengths(running, options, names):
                    print(json.dumps(found) if options.output == "json" else as_text(found), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
