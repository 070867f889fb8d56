"""Whether kube-scheduler's opportunistic batching (KEP 5598) pays for lists of nodes, in one run on control planes.

kube-scheduler takes the next of the nodes that it has ranked for a pod for the next pod too, if both have the same
signature, which has the node affinity in it. Equal pods come in bursts, as of one template:
`none`  without affinity;
`own`   each with the list that Fairgate writes: its best two nodes, two others, and a preference for the first two;
`one`   all pods of a burst with one list, of just the nodes that hold the burst: with others, as fallbacks, pods took
        those too, and the last pods of other bursts had no node left.
Each is measured with kube-scheduler's stock configuration, and without default spread constraints (`List`), as stock
signs no pod. Pods are created while kube-scheduler is paused, so it has all of them in its queue. Prints medians of
rounds in turning order: CPU of kube-scheduler and of the API server per pod, its own time for an attempt, and how often
a ranking was used again. Run it from the repository's root: `python benchmarks/batching.py --rounds 3`.

The figures of docs/adr/0022-not-built.md are those of
    python benchmarks/batching.py --nodes 200 --pods 160 --burst 20
    python benchmarks/batching.py --nodes 200 --gpus 1 --pods 240 --burst 40
"""

import argparse
import asyncio
import os
import ssl
import statistics
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from clusters.load import Request, clear, cpu_of, create, wait_bound
from prometheus_client.parser import text_string_to_metric_families
from throughput import row, table

from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import API_SERVER, SCHEDULER
from tests.control_plane.objects import pod
from tests.control_plane.processes import free_ports
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_namespace, make_nodes
from webhook.core.model.amounts import NodeName
from webhook.core.model.decision import NodeChoice
from webhook.core.model.policy import Mode
from webhook.kube.admission.affinity import affinity_operations

GPUS: Final = 8
LISTS: Final = ("none", "own", "one")
_HITS, _FLUSHED = "scheduler_batch_attempts", "scheduler_batch_cache_flushed"
_ATTEMPT: Final = "scheduler_scheduling_algorithm_duration_seconds"


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one round: CPU milliseconds a pod, microseconds of an attempt to schedule, and how often what happened."""

    scheduler: float
    api_server: float
    attempt: float
    hits: float
    flushed: dict[str, float]


def configuration(cluster_folder: Path, kubeconfig: Path, *, spreads: bool) -> Path:
    """Write kube-scheduler's configuration: stock, or without default spread constraints."""
    arguments = {"defaultingType": "List", "defaultConstraints": []}
    profile: dict[str, Any] = {"schedulerName": "default-scheduler"}
    if not spreads:
        profile["pluginConfig"] = [{"name": "PodTopologySpread", "args": arguments}]
    made = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": [profile],
    }
    path = cluster_folder / f"scheduler-{'stock' if spreads else 'list'}.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


def affinity_of(kind: str, number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the affinity of one pod, {} for none; pods fill nodes one after the other, as Fairgate has them do."""
    if kind == "none":
        return {}
    each = GPUS // options.gpus
    first = number // each if kind == "own" else number // options.burst * options.burst // each
    near = 2 if kind == "own" else -(-options.burst // each)
    far = (options.nodes // 2, options.nodes // 4) if kind == "own" else ()
    places = [*range(first, first + near), *(first + near + distance for distance in far)]
    nodes = tuple(NodeName(f"node-{place % options.nodes}") for place in places)
    (operation,) = affinity_operations(b"", NodeChoice(Mode.AUTO, nodes))
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(operation))["value"]
    if kind == "one":
        del found["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return {"affinity": found}


def making(kind: str, options: argparse.Namespace) -> Callable[[str, str], Request]:
    """Return what makes the pod of a name that ends with its number."""

    def make(name: str, namespace: str) -> Request:
        spec = affinity_of(kind, int(name.rpartition("-")[2]), options)
        made = pod(name, namespace=namespace, gpus=options.gpus, cpu="100m", memory="1Gi", **spec)
        return Request(f"/api/v1/namespaces/{namespace}/pods", made)

    return make


def counters(port: int) -> dict[tuple[str, str], float]:
    """Return kube-scheduler's counters of batching and its time for attempts, by name and by result or reason."""
    anyone = ssl._create_unverified_context()
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=anyone, timeout=30) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name in (_HITS, _FLUSHED, _ATTEMPT) else ():
            if not sample.name.endswith("_bucket"):
                key = sample.labels.get("result") or sample.labels.get("reason") or ""
                found[sample.name, key] += sample.value
    return found


def measure(cluster: ControlPlane, namespace: str, kind: str, options: argparse.Namespace, *, port: int) -> Reading:
    """Have kube-scheduler bind the pods of one round; `port` serves its metrics."""
    before = counters(port)
    cluster.pause(SCHEDULER)
    made = asyncio.run(
        create(cluster, [namespace], options.pods, prefix=kind, connections=1, make=making(kind, options))
    )
    if failures := made.failures():
        raise SystemExit(f"{len(failures)} of {options.pods} creations failed, one with: {failures[0]}")
    with cpu_of(cluster, SCHEDULER.__eq__) as scheduler, cpu_of(cluster, API_SERVER.__eq__) as api_server:
        cluster.resume(SCHEDULER)
        wait_bound(cluster, [namespace], options.pods)
        used = scheduler() * 1000 / options.pods, api_server() * 1000 / options.pods
    after = counters(port)
    clear(cluster, [namespace])
    change = {key: value - before[key] for key, value in after.items()}
    seconds, count = (sum(v for (name, _), v in change.items() if name == f"{_ATTEMPT}_{p}") for p in ("sum", "count"))
    flushed = {reason: value for (name, reason), value in change.items() if name == f"{_FLUSHED}_total" and value}
    hits = change.get((f"{_HITS}_total", "hint_used"), 0)
    return Reading(*used, seconds * 1e6 / max(1, count), hits / options.pods, flushed)


def compare(options: argparse.Namespace, *, spreads: bool) -> dict[str, list[Reading]]:
    """Measure all kinds of lists, in turning order, on one control plane."""
    readings: dict[str, list[Reading]] = defaultdict(list)
    with ControlPlane() as cluster:
        (port,) = free_ports(1)
        config = configuration(cluster.folder, cluster.kubeconfig, spreads=spreads)
        serving = (f"--secure-port={port}", "--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics")
        cluster.restart(SCHEDULER, f"--config={config}", *serving)
        make_nodes(cluster, options.nodes, gpus=GPUS, timeout=600)
        namespace = make_namespace(cluster, "burst")
        measure(cluster, namespace, "none", options, port=port)  # the first round of a process is slower
        for number in range(options.rounds):
            for kind in LISTS if number % 2 == 0 else reversed(LISTS):
                readings[kind].append(measure(cluster, namespace, kind, options, port=port))
    return readings


def report(readings: dict[str, list[Reading]], name: str, options: argparse.Namespace) -> None:
    """Print a table."""
    print(f"\n{name}: {options.pods} pods of {options.gpus} GPUs in bursts of {options.burst}, {options.nodes} nodes")
    print(f"of {GPUS} GPUs, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    table(["lists", "scheduler, CPU ms", "to `own`", "attempt, us", "API server, CPU ms", "used again", "given up"])
    base = [each.scheduler for each in readings["own"]]
    for kind in LISTS:
        rounds = readings[kind]
        ratio = statistics.median(each.scheduler / other for each, other in zip(rounds, base, strict=True))
        lost: dict[str, float] = defaultdict(float)
        for each in rounds:
            for reason, value in each.flushed.items():
                lost[reason] += value / len(rounds)
        parts = ("scheduler", "attempt", "api_server", "hits")
        scheduler, attempt, server, hits = (statistics.median(getattr(each, part) for each in rounds) for part in parts)
        cells = [f"{scheduler:.2f}", f"{ratio:.2f}", f"{attempt:.0f}", f"{server:.2f}", f"{hits:.2f}"]
        row([kind, *cells, ", ".join(f"{reason} {value:.0f}" for reason, value in sorted(lost.items())) or "-"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--gpus", type=int, default=8, help="of each pod: 8 fill a node, as most gangs do")
    parser.add_argument("--burst", type=int, default=50, help="pods of one template or gang")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build.ensure(CONTROL_PLANE)
    for spreads, name in ((True, "stock configuration"), (False, "without default spread constraints")):
        report(compare(options, spreads=spreads), name, options)


if __name__ == "__main__":
    main()
