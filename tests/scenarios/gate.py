"""Runs `fairgate serve` against the test control plane and registers its webhooks, as an operator would."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.balancer import balancing
from tests.control_plane.cleanup import TEAM_LEDGERS
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import list_pods, make_namespace, wait_for
from tests.scenarios import serving
from tests.scenarios.serving import FAIRGATE, ROOT, TIER

TEAM, DECISION = "fairgate.dev/team", "fairgate.dev/decision"


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
        return serving.get(f"{self.replicas[replica].url}{path}", ca=self.ca)

    def metric(self, name: str, *, replica: int = 0, **labels: str) -> float:
        """The sum of a metric's series with these labels in one replica."""
        return serving.total(self.get("/metrics", replica=replica), name, **labels)

    def ledger(self, team: str) -> dict:
        """A team's ledger object."""
        return self.cluster.api.get(f"{TEAM_LEDGERS}/{team}")

    def charged(self, team: str, *, replica: int = 0) -> float:
        """How many GPUs a replica counts for a team, over both tiers."""
        return self.metric("fairgate_gpus_charged", replica=replica, team=team)

    def refused(self, code: str) -> float:
        """How many pods were refused for a reason, at either webhook."""
        return self.metric("fairgate_decisions_total", code=code, outcome="deny")

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

    def wait_served(self) -> None:
        """Wait until a new connection finds a replica that is ready."""
        ready = f"{self.url}/readyz"
        wait_for(
            self.cluster, lambda: '"ready":true' in serving.get(ready, ca=self.ca), what="a replica behind the Service"
        )


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

    Several replicas are behind a Service, which spreads the API server's connections over those that are ready.
    `kubeconfig` is whom Fairgate runs as, by default an admin.
    """
    suffix = secrets.token_hex(3)
    team_a, team_b = make_namespace(cluster, f"team-a-{suffix}"), make_namespace(cluster, f"team-b-{suffix}")
    folder = cluster.folder / f"fairgate-{suffix}"
    policies, certs = folder / "policy", folder / "certs"
    teams = [
        {"name": "a", "namespaces": [team_a], "gpus": {"guaranteed": 20, "limit": limit_a}},
        {"name": "b", "namespaces": [team_b], "gpus": {"guaranteed": 20, "limit": limit_b}},
    ]
    serving.write_policy(policies, teams, more=policy)
    front, *ports = free_ports(replicas + 1)

    def replica(number: int, port: int) -> Replica:
        serve = ("serve", "--policy", policies, "--kubeconfig", kubeconfig or cluster.kubeconfig)
        listen = ("--listen", f"127.0.0.1:{port}", "--certs", certs, "--drain-seconds", "0")
        command = (*FAIRGATE, *serve, *listen)
        return Replica(f"fairgate-{suffix}-{number}", command, f"https://127.0.0.1:{port}")

    made = tuple(replica(number, port) for number, port in enumerate(ports))
    url = made[0].url if replicas == 1 else f"https://127.0.0.1:{front}"
    running = Gate(cluster, made, url, certs / "ca.crt", policies, team_a, team_b)
    service = balancing(cluster.processes, f"fairgate-{suffix}-service", front, *ports)
    with nullcontext() if replicas == 1 else service:
        try:
            running.start()
            printed = serving.manifests(policy=policies, url=url, ca=running.ca)
            serving.register(cluster, printed, namespace=team_a)
            yield running
        finally:
            for number in range(replicas):
                if cluster.processes.is_running(made[number].name):
                    running.resume(number)
            running.stop()
