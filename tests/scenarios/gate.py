"""Runs `fairgate serve` against the test control plane and registers its webhooks, as an operator would."""

from __future__ import annotations

import json
import re
import secrets
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.cleanup import TEAM_LEDGERS
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import list_pods, make_namespace, wait_for
from tests.scenarios.balancer import balancing

TEAM, TIER, DECISION = "fairgate.dev/team", "fairgate.dev/tier", "fairgate.dev/decision"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of Fairgate."""

    name: str
    command: tuple[object, ...]
    url: str


@dataclass(frozen=True, slots=True)
class Gate:
    """A running Fairgate and the namespaces of its two teams; `url` is where the API server calls."""

    cluster: ControlPlane
    replicas: tuple[Replica, ...]
    url: str
    ca: Path
    policy: Path
    team_a: str
    team_b: str

    def get(self, path: str, *, replica: int = 0) -> str:
        """GET one of a replica's endpoints."""
        context = ssl.create_default_context(cafile=self.ca)
        url = f"{self.replicas[replica].url}{path}"
        with urllib.request.urlopen(url, context=context, timeout=10) as answer:
            return answer.read().decode()

    def metric(self, name: str, *, replica: int = 0) -> float:
        """The sum of a metric's series in one replica."""
        lines = [line for line in self.get("/metrics", replica=replica).splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line[len(name)] in "{ ")

    def ledger(self, team: str) -> dict:
        """A team's ledger object."""
        return self.cluster.api.get(f"{TEAM_LEDGERS}/{team}")

    def charged(self, team: str, *, replica: int = 0) -> float:
        """How many GPUs a replica counts for a team, over both tiers."""
        lines = [
            line
            for line in self.get("/metrics", replica=replica).splitlines()
            if line.startswith("fairgate_gpus_charged{")
        ]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'team="{team}"' in line)

    def refused(self, code: str) -> float:
        """How many pods were refused for a reason, at either webhook."""
        found = re.findall(
            rf'^fairgate_decisions_total{{code="{code}",outcome="deny",.*}} (\S+)$', self.get("/metrics"), re.MULTILINE
        )
        return sum(map(float, found))

    def tiers(self, namespace: str) -> list[str]:
        """The tier labels of a namespace's pods, by the pods' names."""
        pods = sorted(list_pods(self.cluster, namespace), key=lambda found: found["metadata"]["name"])
        return [found["metadata"]["labels"][TIER] for found in pods]

    def start(self, replica: int | None = None) -> None:
        """Start one replica, or all, and wait until each is ready."""
        for number in range(len(self.replicas)) if replica is None else (replica,):
            started = self.replicas[number]
            self.cluster.processes.start(started.name, started.command, cwd=ROOT)
            wait_for(
                self.cluster,
                lambda number=number: '"ready":true' in self.get("/readyz", replica=number),
                what=f"{started.name} ready",
            )

    def stop(self, number: signal.Signals = signal.SIGTERM, *, replica: int | None = None) -> None:
        """Stop one replica, or all, with SIGKILL if so wished; the webhooks stay registered."""
        for stopped in self.replicas if replica is None else (self.replicas[replica],):
            if self.cluster.processes.is_running(stopped.name):
                self.cluster.processes.stop(stopped.name, number=number, timeout=10)

    def pause(self, replica: int) -> None:
        """Freeze a replica: its connections stay open and nobody answers."""
        self.cluster.processes.send_signal(self.replicas[replica].name, signal.SIGSTOP)

    def resume(self, replica: int) -> None:
        """Let a frozen replica go on."""
        self.cluster.processes.send_signal(self.replicas[replica].name, signal.SIGCONT)


@contextmanager
def gate(
    cluster: ControlPlane,
    *,
    limit_a: object = 20,
    limit_b: object = 20,
    policy: str = "",
    replicas: int = 1,
    kubeconfig: Path | None = None,
) -> Iterator[Gate]:
    """Serve for two teams with 20 guaranteed GPUs each, until the end of the block; `policy` adds sections as YAML.

    Several replicas are behind a balancer, which gives each its share of the API server's connections. `kubeconfig` is
    whom Fairgate runs as, by default an admin.
    """
    suffix = secrets.token_hex(3)
    team_a, team_b = make_namespace(cluster, f"team-a-{suffix}"), make_namespace(cluster, f"team-b-{suffix}")
    folder = cluster.folder / f"fairgate-{suffix}"
    policies, certs = folder / "policy", folder / "certs"
    policies.mkdir(parents=True)
    teams = [
        {"name": "a", "namespaces": [team_a], "gpus": {"guaranteed": 20, "limit": limit_a}},
        {"name": "b", "namespaces": [team_b], "gpus": {"guaranteed": 20, "limit": limit_b}},
    ]
    head = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
    (policies / "teams.yaml").write_text(f"{head}teams: {json.dumps(teams)}\n{policy}")
    ports = free_ports(replicas)
    fairgate = (sys.executable, "-m", "webhook")

    def replica(number: int, port: int) -> Replica:
        serve = (
            "serve",
            "--policy",
            policies,
            "--kubeconfig",
            kubeconfig or cluster.kubeconfig,
            "--listen",
            f"127.0.0.1:{port}",
        )
        command = (*fairgate, *serve, "--certs", certs, "--drain-seconds", "0")
        return Replica(f"fairgate-{suffix}-{number}", command, f"https://127.0.0.1:{port}")

    made = tuple(replica(number, port) for number, port in enumerate(ports))
    with balancing(ports) if replicas > 1 else nullcontext(ports[0]) as port:
        url = f"https://127.0.0.1:{port}"
        running = Gate(cluster, made, url, certs / "ca.crt", policies, team_a, team_b)
        try:
            running.start()
            _register(running, fairgate)
            yield running
        finally:
            for number in range(replicas):
                if cluster.processes.is_running(made[number].name):
                    running.resume(number)
            running.stop()


def _register(running: Gate, fairgate: tuple[str, ...]) -> None:
    """Apply the manifests and wait until the API server calls."""
    manifests = subprocess.run(
        [*fairgate, "manifests", "--policy", running.policy, "--url", running.url, "--ca", running.ca],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    running.cluster.kubectl("apply", "-f", "-", stdin=manifests)
    wait_for(running.cluster, lambda: _is_asked(running), what="the API server asks Fairgate")


def _is_asked(running: Gate) -> bool:
    """Tell whether the webhooks are in force: a dry run comes back labelled."""
    created = json.loads(
        running.cluster.kubectl(
            "create",
            "--dry-run=server",
            "-o",
            "json",
            "-f",
            "-",
            "-n",
            running.team_a,
            stdin=json.dumps(pod("probe", gpus=1)),
        )
    )
    return TIER in created["metadata"]["labels"]
