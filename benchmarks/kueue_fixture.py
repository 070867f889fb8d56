"""Kueue's own performance test, on Fairgate: thousands of workloads of many queues at once, most of which wait.

The load is that of kubernetes-sigs/kueue, test/performance/scheduler/configs/{baseline,large-scale}/generator.yaml, at
v0.19.1: in each queue three classes are created side by side, each pod after a pause; its run time begins once it
runs. A ClusterQueue is a team, a Cohort a department, a CPU a GPU, a Workload a bare pod, its priority a PriorityClass.

What differs, in Kueue's favor: there, nothing but Workload objects exists. One starts when its quota is reserved, the
runner ends it, and no node, scheduler or webhook takes part. Here each is a pod on nodes of 20 GPUs (KWOK), which the
API server reviews twice, kube-scheduler binds, and a kubelet starts and ends; it waits until it is bound. Kueue lets a
queue preempt its own workloads of lower priority; here nothing is evicted, since bare pods would not come back: a pod
that waits for a limit is soon no longer passed by smaller ones.

Prints a Markdown table: pods per second from the first creation until the last is bound, the mean seconds from creation
until a pod is bound by class, and turns of the server's event loop over 50 ms by what ran.
Run it from the repository's root: `python benchmarks/kueue_fixture.py --config baseline`.

The figures of docs/benchmarks.md are those of
    python benchmarks/kueue_fixture.py --config baseline
    python benchmarks/kueue_fixture.py --config large-scale
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from benchmarks.clusters.load import cpu_of
from benchmarks.side_by_side.loads import Order, Team
from tests.chaos.client import ask, session
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for
from tests.scenarios import serving
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate

GUARANTEED, LIMIT = 20, 120
NODE_GPUS = 20
CONNECTIONS = 100
KEEP_ENDED = ("--terminated-pod-gc-threshold=0",)
"""Else it deletes pods that ended, beyond 12,500, before their waits are read."""
PODS = "/api/v1/pods"
PROCESSES = {"Fairgate": lambda name: name.startswith("fairgate-"), "API server": API_SERVER.__eq__}
PROCESSES |= {"scheduler": SCHEDULER.__eq__, "all": lambda _: True}
_BLOCKED = re.compile(r'^fairgate_event_loop_held_seconds_(count|sum)\{by="([^"]+)"\} ([0-9.e+-]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one size in each queue; times in milliseconds."""

    name: str
    gpus: int
    priority: int
    count: int
    every: int
    runs: int


@dataclass(frozen=True, slots=True)
class Config:
    """A load; `published` is what Kueue published of it: starts per second, and mean seconds to admission by class."""

    cohorts: int
    queues: int
    classes: tuple[Class, ...]
    published: tuple[float, Mapping[str, float]]

    @property
    def pods(self) -> int:
        return self.cohorts * self.queues * sum(each.count for each in self.classes)


CONFIGS = {
    "baseline": Config(
        5,
        6,
        (
            Class("small", 1, 50, 350, 100, 200),
            Class("medium", 5, 100, 100, 500, 500),
            Class("large", 20, 200, 50, 1200, 1000),
        ),
        (42.7, {"large": 16.5, "medium": 76.8, "small": 215.5}),
    ),
    "large-scale": Config(
        10,
        100,
        (
            Class("small", 1, 50, 35, 60, 150),
            Class("medium", 5, 100, 11, 300, 350),
            Class("large", 20, 200, 4, 700, 700),
        ),
        (42.4, {"large": 105.6, "medium": 256.4, "small": 700.4}),
    ),
}


def teams_of(config: Config) -> list[Team]:
    """Return a team for each queue, below a department for its cohort."""
    return [
        Team(f"queue-{cohort}-{number}", GUARANTEED, f"cohort-{cohort}")
        for cohort in range(config.cohorts)
        for number in range(config.queues)
    ]


def policy_of(teams: Sequence[Team], config: Config) -> str:
    """Return the policy: every pod over a limit, or without room, waits."""
    whole = {"guaranteed": GUARANTEED * config.queues, "limit": GUARANTEED * config.queues}
    more = {
        "departments": [{"name": name, "gpus": whole} for name in dict.fromkeys(team.department for team in teams)],
        "defaults": {"onLimit": "queue", "onNoRoom": "queue"},
        "queue": {"depth": 100_000, "strictAfter": "1s"},
        "reclaim": {"protect": ["*"]},
    }
    shares = [
        {
            "name": team.name,
            "namespaces": [team.name],
            "department": team.department,
            "gpus": {"guaranteed": GUARANTEED, "limit": LIMIT},
        }
        for team in teams
    ]
    return serving.policy_of(shares, more="".join(f"{key}: {json.dumps(value)}\n" for key, value in more.items()))


@contextmanager
def prepared(config: Config) -> Iterator[tuple[ControlPlane, FairgateServer]]:
    """Yield a control plane with nodes, namespaces and priorities, and Fairgate on it."""
    teams = teams_of(config)
    with ControlPlane(extra_args={CONTROLLER_MANAGER: KEEP_ENDED}) as cluster:
        make_nodes(cluster, len(teams) * GUARANTEED // NODE_GPUS, gpus=NODE_GPUS, timeout=900)
        for team in teams:
            make_namespace(cluster, team.name)
        for each in config.classes:
            made = {"metadata": {"name": each.name}, "value": each.priority, "preemptionPolicy": "Never"}
            cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", made)
        with serve_fairgate(cluster, is_own=True) as fairgate:
            serving.write_policy(fairgate.policy, policy_of(teams, config))
            serving.wait_policy(cluster, fairgate.policy, lambda: fairgate.get("/readyz"))
            yield cluster, fairgate


async def create(cluster: ControlPlane, config: Config) -> int:
    """Create all pods: the classes of all queues side by side, each pod a pause after the last was answered.

    Return how many creations were tried again, as controllers do: the API server answered that it cannot now.
    """
    again = 0
    async with session(cluster, connections=CONNECTIONS) as api, asyncio.TaskGroup() as group:

        async def one_class(team: Team, kind: Class) -> None:
            nonlocal again
            for number in range(kind.count):
                await asyncio.sleep(kind.every / 1000)
                order = Order(team, f"{kind.name}-{number}", gpus=kind.gpus, seconds=kind.runs / 1000, is_bare=True)
                made = order.manifest()
                made["spec"]["priorityClassName"] = kind.name
                status, answer = await ask(api, "POST", order.path, made)
                while status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    print(f"{order.name}: {answer.get('message')}", file=sys.stderr, flush=True)
                    again += 1
                    await asyncio.sleep(1)
                    status, answer = await ask(api, "POST", order.path, made)
                if status not in (HTTPStatus.CREATED, HTTPStatus.CONFLICT):
                    raise SystemExit(f"{team.name}/{order.name} was refused: {answer.get('message')}")

        for team in teams_of(config):
            for kind in config.classes:
                group.create_task(one_class(team, kind))
    return again


def measure(cluster: ControlPlane, fairgate: FairgateServer, config: Config, *, seconds: float) -> list[str]:
    """Run the load; return the lines of the table."""

    def is_done() -> bool:
        return not cluster.api.list(PODS, fieldSelector="spec.nodeName=", limit="1")

    with ExitStack() as stack:
        spent = {name: stack.enter_context(cpu_of(cluster, of)) for name, of in PROCESSES.items()}
        began = time.perf_counter()
        again = asyncio.run(create(cluster, config))
        created = time.perf_counter()
        print(f"created after {created - began:.0f} s", file=sys.stderr, flush=True)
        wait_for(cluster, is_done, what="all pods are bound", timeout=seconds, poll=2)
        lasted = time.perf_counter() - began
        used = ", ".join(f"{name} {each() * 1000 / config.pods:.2f}" for name, each in spent.items())
    rate, published = config.published
    waits = waits_of(all_pods(cluster))
    lines = ["| | Kueue, as published | Fairgate |", "| --- | --- | --- |"]
    lines.append(f"| pods per second | {rate} | {config.pods / lasted:.1f} |")
    means = {kind.name: statistics.mean(waits[kind.name]) for kind in config.classes}
    lines += [f"| {name}, mean wait | {published[name]} s | {mean:.1f} s |" for name, mean in means.items()]
    lines += ["", f"{config.pods} pods in {lasted:.0f} s, created in {created - began:.0f} s; CPU in ms a pod: {used}."]
    lines.append(f"Creations tried again: {again}.")
    return [*lines, f"Event loop over 50 ms: {blocked(fairgate.get('/metrics'))}."]


def all_pods(cluster: ControlPlane) -> Iterator[Mapping[str, Any]]:
    """Yield all pods, read in pages."""
    more: dict[str, str] = {}
    while True:
        page = cluster.api.get(PODS, limit="500", **more)
        yield from page["items"]
        if not (following := page["metadata"].get("continue")):
            return
        more = {"continue": following}


def waits_of(pods: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the seconds from the creation of each pod until it was bound, by class; whole seconds, as Kueue's."""
    found: dict[str, list[float]] = defaultdict(list)
    for pod in pods:
        bound = next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
        times = (pod["metadata"]["creationTimestamp"], bound["lastTransitionTime"])
        began, ended = (datetime.fromisoformat(text) for text in times)
        found[pod["spec"]["priorityClassName"]].append((ended - began).total_seconds())
    return found


def blocked(metrics: str) -> str:
    """Return how often, and for how long in all, the event loop was blocked, by what ran."""
    found: dict[str, dict[str, float]] = {}
    for what, by, value in _BLOCKED.findall(metrics):
        found.setdefault(by, {})[what] = float(value)
    rows = [f"{by} {each['count']:.0f} times, {each['sum']:.1f} s" for by, each in sorted(found.items())]
    return "; ".join(rows) or "never"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=list(CONFIGS), default="baseline")
    parser.add_argument("--seconds", type=float, default=1800, help="after which it is given up")
    options = parser.parse_args(arguments)
    build.ensure(CONTROL_PLANE)
    with prepared(CONFIGS[options.config]) as (cluster, fairgate):
        lines = measure(cluster, fairgate, CONFIGS[options.config], seconds=options.seconds)
    print(f"{options.config}, load {os.getloadavg()[0]:.1f}", "", *lines, sep="\n")


if __name__ == "__main__":
    main()
