"""kube-scheduler in upstream's own harness, with pods as Fairgate patches them, beside the same pods without a patch.

The harness is `test/integration/scheduler_perf` of Kubernetes 1.37: API server and scheduler in one process, etcd
beside it, nodes and pods from templates, throughput in samples of one second. Two cases:
`extended`  upstream's SchedulingWithExtendedResource: node i offers one `foo.com/bar-i`, pod i asks for it;
`gpus`      nodes of eight GPUs; pods ask for 1, 1, 2, 4 or 8, in bursts of 16 equal ones.
Encodings of the choice of a node: `stock`, no patch; the placement modes `require` (one node), `auto` (the best few,
which is the default) and `prefer`; and those of node_encodings.py, which Fairgate does not write.
Schedulers: `default`; `unbatched`, without the feature gate OpportunisticBatching; `batched`, without default topology
spread constraints and with one signature for each burst, else opportunistic batching (KEP 5598) takes no pod.
All take turns, each run is a process of its own, and another begins in each round. Prints a Markdown table: medians
over the rounds, with the range; CPU is that of a profile of the harness. The harness is built from its Go module the
first time: about 10 minutes on two cores. Take more nodes than pods: stock spreads small ones, and pods of eight GPUs
then find no free node. Run it from the repository's root:
`python -m benchmarks.scheduler_perf --nodes 5000 --pods 2000`.

The figures of docs/benchmarks.md are those of
    python -m benchmarks.scheduler_perf --cases CASE --nodes 5000 --pods N
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from benchmarks.node_encodings import BURST, ENCODINGS
from benchmarks.turns import in_turn
from tests.blackbox.api import patched as stored_as
from tests.blackbox.in_process import InProcess
from tests.builders import Json, node, pod, review
from tests.control_plane import build
from tests.control_plane.assets import GOMOD, cache_root
from tests.control_plane.toolchain import find_go
from tests.control_plane.versions import ETCD, SCHEDULER_PERF

GPUS_OF_POD = (1, 1, 2, 4, 8)
PLENTY = 1_000_000
SCHEDULER_CODE = "k8s.io/kubernetes/pkg/scheduler"


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes, pods that all fit, and the resource names that the policy counts as one GPU each."""

    nodes: list[Json]
    pods: list[Json]
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """Scheduled pods a second, the milliseconds in which a node was chosen, and CPU milliseconds a pod.

    `scheduler_cpu` is that of all that runs below a function of kube-scheduler, `cpu` that of the whole process: API
    server, scheduler and the harness, which makes the pods.
    """

    per_second: float
    choice_ms: float
    scheduler_cpu: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Feature gates, configuration, and how many pods one after the other have the same signature."""

    gates: Mapping[str, bool]
    config: Json | None = None
    equal: int = 1


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


SCHEDULERS: Mapping[str, Scheduler] = {
    "default": Scheduler({}),
    "unbatched": Scheduler({"OpportunisticBatching": False}),
    "batched": Scheduler({"OpportunisticBatching": True}, WITHOUT_SPREADING, equal=BURST),
}

CHOICE = "scheduler_scheduling_algorithm_duration_seconds"


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
    wanted = [GPUS_OF_POD[i // BURST % len(GPUS_OF_POD)] for i in range(pods)]
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


def measure(case: Case, pods: Sequence[Json], scheduler: Scheduler) -> Reading:
    """Run the harness once, with objects that are written out: its templates only pick the next one of a list."""
    with tempfile.TemporaryDirectory(prefix="fairgate-scheduler-perf-") as name:
        folder = Path(name)
        (folder / "template.yaml").write_text("{{index .objects .Index}}\n")
        (folder / "scheduler.yaml").write_text(json.dumps(scheduler.config))
        (folder / "cases.yaml").write_text(json.dumps([harness_case(case, pods, scheduler, folder)]))
        output = folder / "output"
        with output.open("w") as log:
            done = subprocess.run(
                _command(folder), env=_environment(folder), stdout=log, stderr=log, cwd=folder, check=False
            )
        if done.returncode:
            raise SystemExit(f"scheduler_perf ended with {done.returncode}:\n{output.read_text()[-4000:]}")
        (items,), (profile,) = folder.glob("BenchmarkPerfScheduling_*.json"), folder.glob("*-cpu.prof")
        used = [samples_seconds(top(profile, focus)) * 1000 / len(pods) for focus in (SCHEDULER_CODE, ".")]
        return Reading(*read(json.loads(items.read_text())["dataItems"]), *used)


def harness_case(case: Case, pods: Sequence[Json], scheduler: Scheduler, folder: Path) -> Json:
    """Return the case as the harness reads it: one workload whose templates each pick the next of all objects."""
    template = f"{folder}/template.yaml"
    nodes = {"opcode": "createNodes", "nodeTemplatePath": template, **_written_out(case.nodes)}
    create = {"opcode": "createPods", "podTemplatePath": template}
    measured = {"namespace": "vision", "collectMetrics": True, "signatureBatchSize": scheduler.equal}
    return {
        "name": "Fairgate",
        "featureGates": {**scheduler.gates},
        "metricsCollectorConfig": {"metrics": {CHOICE: None}},
        **({"schedulerConfigPath": f"{folder}/scheduler.yaml"} if scheduler.config else {}),
        "workloadTemplate": [nodes, create | measured | _written_out(pods)],
        "workloads": [{"name": "measured", "params": {}}],
    }


def _written_out(objects: Sequence[Json]) -> Json:
    return {"count": len(objects), "templateParams": {"objects": [json.dumps(each) for each in objects]}}


def _command(folder: Path) -> list[str]:
    flags = (
        "-test.run=^$",
        "-test.bench=.",
        "-test.benchtime=1x",
        "-test.timeout=1h",
        "-perf-cpuprofile",
        "-perf-scheduling-label-filter=",
    )
    return [
        str(build.binary_path(SCHEDULER_PERF, "scheduler-perf")),
        f"{folder}/cases.yaml",
        *flags,
        f"-data-items-dir={folder}",
    ]


def _environment(folder: Path) -> dict[str, str]:
    """Return variables with etcd on the path, and with the folder in which the API server puts its certificate.

    The harness finds that folder by the path of its own source, which a build with -trimpath does not have whole.
    """
    source = f"k8s.io/kubernetes@v{SCHEDULER_PERF.version}/cmd/kube-apiserver/app/testing"
    (folder / source / "testdata").mkdir(parents=True)
    etcd = build.binary_path(ETCD, "etcd").parent
    return {
        **os.environ,
        "PATH": f"{etcd}:{os.environ['PATH']}",
        "TEST_SRCDIR": str(folder.parent),
        "TEST_WORKSPACE": folder.name,
        "KUBE_CACHE_MUTATION_DETECTOR": "false",
    }


def read(items: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return what the harness measured: pods a second, and the milliseconds in which a node was chosen."""
    averages = {item["labels"]["Metric"]: item["data"].get("Average") for item in items if "Metric" in item["labels"]}
    return [averages[name] for name in ("SchedulingThroughput", CHOICE)]


def top(profile: Path, focus: str) -> str:
    """Return pprof's list of the functions of samples in whose stack a function matches."""
    go = find_go(cache_root(), say=build.say_on_stderr)
    options = [f"-focus={focus}", "-nodefraction=0", "-nodecount=1000000"]
    command: list[str | Path] = [go, "tool", "pprof", "-top", *options, profile]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=GOMOD / SCHEDULER_PERF.name).stdout


def samples_seconds(listed: str) -> float:
    """Return the CPU seconds that a list of pprof accounts for."""
    found = re.search(r"nodes accounting for ([\d.]+)(ms|s|mins|hrs)?,", listed)
    if found is None:
        raise SystemExit(f"pprof's list has no sum:\n{listed[:500]}")
    return float(found[1]) * {None: 0, "ms": 0.001, "s": 1, "mins": 60, "hrs": 3600}[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=["stock", "require", "auto", "prefer"])
    parser.add_argument("--schedulers", nargs="+", choices=SCHEDULERS, default=["default"])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build.ensure([ETCD, SCHEDULER_PERF])
    print("| case | encoding, scheduler | pods/s | beside stock | ms a choice | scheduler's CPU, ms | all CPU, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    variants = [(encoding, scheduler) for scheduler in options.schedulers for encoding in options.encodings]
    for name in options.cases:
        case = CASES[name](options.nodes, options.pods)
        with tempfile.TemporaryDirectory() as folder:
            modes = {ENCODINGS[encoding].mode for encoding in options.encodings}
            by_mode = {mode: patched(case, mode, Path(folder)) for mode in modes}
        readings: dict[tuple[str, str], list[Reading]] = defaultdict(list)
        for encoding, scheduler in in_turn(variants, options.rounds):
            made = ENCODINGS[encoding]
            reading = measure(case, made.encode(by_mode[made.mode]), SCHEDULERS[scheduler])
            readings[encoding, scheduler].append(reading)
            print(name, encoding, scheduler, reading, file=sys.stderr, flush=True)
        for variant in variants:
            print(row(name, variant, readings), flush=True)


def row(case: str, variant: tuple[str, str], readings: Mapping[tuple[str, str], Sequence[Reading]]) -> str:
    """Return a row of the table, beside stock pods and the same scheduler if those were measured."""
    encoding, scheduler = variant
    rates = [each.per_second for each in readings[variant]]
    stock = [each.per_second for each in readings.get(("stock", scheduler), ())]
    beside = f"{statistics.median(rates) / statistics.median(stock):.2f}" if stock else ""
    spread = f"{statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})"
    rest = [statistics.median(values) for values in zip(*map(astuple, readings[variant]), strict=True)][1:]
    return (
        f"| {case} | {encoding}, {scheduler} | {spread} | {beside} | {' | '.join(f'{value:.2f}' for value in rest)} |"
    )


if __name__ == "__main__":
    main()
