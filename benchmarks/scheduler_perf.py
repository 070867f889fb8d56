"""kube-scheduler in upstream's own harness, with pods as Fairgate patches them, beside the same pods without a patch.

The harness is `test/integration/scheduler_perf` of Kubernetes 1.37: API server and scheduler in one process, etcd
beside it, nodes and pods from templates, throughput in samples of one second. Two cases:
`extended`  upstream's SchedulingWithExtendedResource: node i offers one `foo.com/bar-i`, pod i asks for it;
`gpus`      nodes of eight GPUs; pods ask for 1, 1, 2, 4 or 8, each in its turn.
Encodings: `stock` (no patch), `require` (one node), `auto` (the best few nodes, what Fairgate does unless told
otherwise), `prefer`; `-batched` is the same with a scheduler that has no default topology spread constraints, without
which opportunistic batching (KEP 5598) takes no pod. Encodings take turns, each run is a process of its own, and
another begins in each round. Prints a Markdown table: medians over the rounds, with the range. The harness is built
from its Go module the first time: about 10 minutes on two cores. Run it from the repository's root:
`python -m benchmarks.scheduler_perf --nodes 5000 --pods 5000`.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.turns import in_turn
from tests.blackbox.api import patched as stored_as
from tests.blackbox.in_process import InProcess
from tests.builders import Json, node, pod, review
from tests.control_plane import build
from tests.control_plane.versions import ETCD, SCHEDULER_PERF

GPU = "nvidia.com/gpu"
GPUS_OF_POD = (1, 1, 2, 4, 8)
PLENTY = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes, pods that all fit, and the resource names that the policy counts as one GPU each."""

    nodes: list[Json]
    pods: list[Json]
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Encoding:
    """How pods name nodes, and whether the scheduler is set up so that it can batch."""

    mode: str | None = None
    can_batch: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """Scheduled pods a second, and the milliseconds of an attempt."""

    per_second: float
    attempt_ms: float


ENCODINGS: Mapping[str, Encoding] = {
    f"{mode or 'stock'}{'-batched' if can_batch else ''}": Encoding(mode, can_batch)
    for can_batch in (False, True)
    for mode in (None, "require", "auto", "prefer")
}

WITHOUT_SPREADING: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": []}}
            ],
        }
    ],
}


def extended(nodes: int, pods: int) -> Case:
    """Return upstream's case: each pod fits on one node only. Its nodes have 4 CPUs and 32 GiB."""
    names = [f"foo.com/bar-{i}" for i in range(nodes)]
    made = [node(f"node-{i:05}", gpus=1, resource=name, cpu="4", memory="32Gi") for i, name in enumerate(names)]
    asking = [
        pod(
            name=f"pod-{i:05}",
            containers=[
                {"name": "pause", "image": "pause", "resources": {"limits": {name: "1"}, "requests": {name: "1"}}}
            ],
        )
        for i, name in enumerate(names[:pods])
    ]
    return Case(made, asking, tuple(names))


def gpus(nodes: int, pods: int) -> Case:
    """Return a cluster of nodes of eight GPUs."""
    made = [node(f"node-{i:05}", gpus=8, cpu="96", memory="768Gi") for i in range(nodes)]
    wanted = [GPUS_OF_POD[i % len(GPUS_OF_POD)] for i in range(pods)]
    return Case(made, [pod(name=f"pod-{i:05}", gpus=count) for i, count in enumerate(wanted)])


CASES: Mapping[str, Callable[[int, int], Case]] = {"extended": extended, "gpus": gpus}


def patched(case: Case, mode: str | None, folder: Path) -> list[Json]:
    """Return the pods as the API server would store them: judged and charged one after the other by Fairgate."""
    if mode is None:
        return case.pods
    policy = {
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Policy",
        "teams": [{"name": "vision", "namespaces": ["vision"], "gpus": {"guaranteed": PLENTY, "limit": PLENTY}}],
        "pools": [{"name": "all"}],
        "placement": {"mode": mode},
        "resources": {name: {"gpus": 1} for name in case.resources},
    }
    webhook = InProcess(folder, policy, case.nodes)
    return [_admitted(webhook, each, uid=f"uid-{i}") for i, each in enumerate(case.pods)]


def _admitted(webhook: InProcess, created: Json, *, uid: str) -> Json:
    advised = webhook.ask("/mutate", review(created, uid=uid))
    if isinstance(advised, str):
        raise SystemExit(f"the benchmark's pod could not be read: {advised}")
    stored = stored_as(created, advised["response"])
    stored["metadata"]["uid"] = uid
    verdict = webhook.ask("/validate", review(stored, uid=uid))
    if isinstance(verdict, str) or not verdict["response"]["allowed"]:
        raise SystemExit(f"the benchmark's pod was refused: {verdict}")
    del stored["metadata"]["uid"]
    return stored


def measure(case: Case, pods: Sequence[Json], *, can_batch: bool) -> Reading:
    """Run the harness once, with objects that are written out: its templates only pick the next one of a list."""
    with tempfile.TemporaryDirectory(prefix="fairgate-scheduler-perf-") as name:
        folder = Path(name)
        for template, objects in (("node", "nodes"), ("pod", "pods")):
            (folder / f"{template}.yaml").write_text(f"{{{{index .{objects} .Index}}}}\n")
        (folder / "scheduler.yaml").write_text(json.dumps(WITHOUT_SPREADING))
        (folder / "cases.yaml").write_text(json.dumps([harness_case(case, pods, folder, can_batch=can_batch)]))
        output = folder / "output"
        with output.open("w") as log:
            done = subprocess.run(_command(folder), env=_environment(), stdout=log, stderr=log, cwd=folder, check=False)
        (items,) = [*folder.glob("BenchmarkPerfScheduling_*.json")] or [None]
        if done.returncode or items is None:
            raise SystemExit(f"scheduler_perf ended with {done.returncode}:\n{output.read_text()[-4000:]}")
        return read(json.loads(items.read_text())["dataItems"])


def harness_case(case: Case, pods: Sequence[Json], folder: Path, *, can_batch: bool) -> Json:
    """Return the case as the harness reads it: one workload whose templates each pick the next of all objects."""
    texts = {"nodes": [json.dumps(each) for each in case.nodes], "pods": [json.dumps(each) for each in pods]}
    nodes = {"opcode": "createNodes", "count": len(case.nodes), "nodeTemplatePath": f"{folder}/node.yaml"}
    created = {"opcode": "createPods", "count": len(pods), "podTemplatePath": f"{folder}/pod.yaml"}
    return {
        "name": "Fairgate",
        **({"schedulerConfigPath": f"{folder}/scheduler.yaml"} if can_batch else {}),
        "workloadTemplate": [
            nodes | {"templateParams": {"nodes": texts["nodes"]}},
            created | {"namespace": "vision", "collectMetrics": True, "templateParams": {"pods": texts["pods"]}},
        ],
        "workloads": [{"name": "measured", "params": {}}],
    }


def _command(folder: Path) -> list[str]:
    flags = (
        "-test.run=^$",
        "-test.bench=.",
        "-test.benchtime=1x",
        "-test.timeout=1h",
        "-perf-scheduling-label-filter=",
    )
    return [
        str(build.binary_path(SCHEDULER_PERF, "scheduler-perf")),
        f"{folder}/cases.yaml",
        *flags,
        f"-data-items-dir={folder}",
    ]


def _environment() -> dict[str, str]:
    etcd = build.binary_path(ETCD, "etcd").parent
    return {**os.environ, "PATH": f"{etcd}:{os.environ['PATH']}", "KUBE_CACHE_MUTATION_DETECTOR": "false"}


def read(items: Sequence[Mapping[str, Any]]) -> Reading:
    """Return what the harness measured."""
    by_metric = {item["labels"]["Metric"]: item["data"]["Average"] for item in items if _is_overall(item["labels"])}
    return Reading(by_metric["SchedulingThroughput"], by_metric["scheduler_scheduling_attempt_duration_seconds"])


def _is_overall(labels: Mapping[str, str]) -> bool:
    return labels.get("result", "scheduled") == "scheduled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=[*ENCODINGS])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build.ensure([ETCD, SCHEDULER_PERF])
    print("| case | encoding | pods/s | beside stock | ms an attempt |\n| --- | --- | --- | --- | --- |")
    for name in options.cases:
        case = CASES[name](options.nodes, options.pods)
        readings: dict[str, list[Reading]] = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder:
            pods = {mode: patched(case, mode, Path(folder)) for mode in {ENCODINGS[e].mode for e in options.encodings}}
        for encoding in in_turn(options.encodings, options.rounds):
            how = ENCODINGS[encoding]
            readings[encoding].append(measure(case, pods[how.mode], can_batch=how.can_batch))
        show(name, readings, order=options.encodings)


def show(case: str, readings: Mapping[str, Sequence[Reading]], *, order: Sequence[str]) -> None:
    """Print the rows of one case."""
    rates = {encoding: statistics.median(each.per_second for each in readings[encoding]) for encoding in order}
    for encoding in order:
        of = readings[encoding]
        low, high = min(each.per_second for each in of), max(each.per_second for each in of)
        beside = f"{rates[encoding] / rates['stock']:.2f}" if "stock" in rates else ""
        attempt = statistics.median(each.attempt_ms for each in of)
        print(f"| {case} | {encoding} | {rates[encoding]:.0f} ({low:.0f} to {high:.0f}) | {beside} | {attempt:.2f} |")


if __name__ == "__main__":
    main()
