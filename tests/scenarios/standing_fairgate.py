"""Runs `fairgate serve` against the test control plane and registers its webhooks, as an operator would.

A scenario of one replica borrows the control plane's standing Fairgate: a server that keeps running from scenario to
scenario and is given another policy. Scenarios with several replicas, or about how it is registered, have their own.
"""

from __future__ import annotations

import dataclasses
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.control_plane.balancer import balancing
from tests.control_plane.cleanup import TEAM_LEDGERS, delete, delete_state
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.minors import DEVICES, HAS_DEVICES
from tests.control_plane.objects import GPU
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import list_pods, make_namespace, wait_for
from tests.scenarios import serving
from tests.scenarios.serving import FAIRGATE, ROOT, TIER

LEASE_SECONDS = 6
TEAM, DECISION = "fairgate.dev/team", "fairgate.dev/decision"


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of Fairgate."""

    name: str
    command: tuple[object, ...]
    url: str


@dataclass(frozen=True, slots=True)
class FairgateServer:
    """A running Fairgate and the namespaces of its two teams; `url` is where the API server calls."""

    cluster: ControlPlane
    replicas: tuple[Replica, ...]
    url: str
    ca: Path
    policy: Path
    team_a: str
    team_b: str
    _counted: dict[int, str] = field(default_factory=dict)  # the metrics of each replica when the scenario began

    @property
    def histories(self) -> tuple[Path, ...]:
        """The files in which the replicas record usage."""
        return tuple(self.policy.parent / f"history-{number}.db" for number in range(len(self.replicas)))

    def get(self, path: str, *, replica: int = 0) -> str:
        """GET one of a replica's endpoints."""
        return serving.get(f"{self.replicas[replica].url}{path}", ca=self.ca)

    def metric(self, name: str, *, replica: int = 0, **labels: str) -> float:
        """The sum of a metric's series with these labels in one replica; a counter counts from the scenario's start."""
        total = serving.total(self.get("/metrics", replica=replica), name, **labels)
        if name.endswith("_total") and replica in self._counted:
            total -= serving.total(self._counted[replica], name, **labels)
        return total

    def count_from_now(self) -> None:
        """Have counters begin at 0."""
        self._counted.update({number: self.get("/metrics", replica=number) for number in range(len(self.replicas))})

    def ledger(self, team: str) -> dict:
        """A team's ledger object."""
        return self.cluster.api.get(f"{TEAM_LEDGERS}/{team}")

    def charged(self, team: str, *, replica: int = 0) -> float:
        """How many GPUs a replica counts for a team, over both tiers."""
        return self.metric("fairgate_gpus_charged", replica=replica, team=team)

    def wait_seen(self, team: str) -> None:
        """Wait until a replica has seen each pod of a team that it admitted: until then they are reserved, not used."""
        wait_for(
            self.cluster,
            lambda: self.metric("fairgate_team_gpus_reserved", team=team) == 0,
            what=f"all pods of team {team} are seen",
        )

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
            self._counted.pop(number, None)
            self.cluster.processes.start(started.name, started.command, cwd=ROOT)
            wait_for(
                self.cluster,
                lambda number=number: '"ready":true' in self.get("/readyz", replica=number),
                what=f"{started.name} ready",
            )

    def stop(self, number: signal.Signals = signal.SIGTERM, *, replica: int | None = None) -> None:
        """Stop one replica, or all, with SIGKILL if so wished; the webhooks stay registered."""
        for stopped in self.replicas if replica is None else (self.replicas[replica],):
            self.cluster.processes.end(stopped.name, number)

    def pause(self, replica: int) -> None:
        """Freeze a replica: its connections stay open without responses."""
        self.cluster.processes.send_signal(self.replicas[replica].name, signal.SIGSTOP)

    def resume(self, replica: int) -> None:
        """Resume a frozen replica."""
        self.cluster.processes.send_signal(self.replicas[replica].name, signal.SIGCONT)

    def wait_served(self) -> None:
        """Wait until a new connection reaches a replica that is ready."""
        ready = f"{self.url}/readyz"
        wait_for(
            self.cluster, lambda: '"ready":true' in serving.get(ready, ca=self.ca), what="a replica behind the Service"
        )


@contextmanager
def serve_fairgate(
    cluster: ControlPlane,
    *,
    limit_a: object = 20,
    limit_b: object = 20,
    policy: str = "",
    replicas: int = 1,
    kubeconfig: Path | None = None,
    is_own: bool = False,
    has_history: bool = False,
) -> Iterator[FairgateServer]:
    """Serve for two teams with 20 guaranteed GPUs each, until the end of the block; `policy` adds sections as YAML.

    Several replicas are behind a Service, which spreads the API server's connections over those that are ready.
    `kubeconfig` has the user that Fairgate runs as, by default an admin. `is_own`: the scenario changes how Fairgate is
    registered, reads its log or stops it for good. `has_history`: each replica records usage.
    """

    def policy_for(team_a: str, team_b: str) -> str:
        teams = [
            {"name": "a", "namespaces": [team_a], "gpus": {"guaranteed": 20, "limit": limit_a}},
            {"name": "b", "namespaces": [team_b], "gpus": {"guaranteed": 20, "limit": limit_b}},
        ]
        return serving.policy_of(teams, more=policy)

    if replicas == 1 and kubeconfig is None and not (is_own or has_history):
        # The same text for every scenario of these limits: then the server need not load another policy.
        serving_one = _standing(cluster, policy_for("team-a-*", "team-b-*"))
    else:
        cluster.vacate()
        teams = _make_teams(cluster)
        own = _new_server(cluster, *teams, replicas=replicas, kubeconfig=kubeconfig, has_history=has_history)
        serving.write_policy(own.policy, policy_for(own.team_a, own.team_b))
        serving_one = _own(own)
    with serving_one as running:
        yield running


@contextmanager
def _standing(cluster: ControlPlane, content: str) -> Iterator[FairgateServer]:
    """Use the control plane's standing Fairgate; it stays unless the scenario failed or stopped it."""
    if cluster.standing is None:
        cluster.standing = Installation(cluster)
    try:
        yield cluster.standing.prepared(content)
    except BaseException:
        cluster.vacate()
        raise
    if not cluster.standing.is_running():
        cluster.vacate()


class Installation:
    """A Fairgate that keeps running from scenario to scenario, with the objects that register it."""

    def __init__(self, cluster: ControlPlane):
        self._cluster = cluster
        self._server = _new_server(cluster, "", "")
        self._printed = ""
        self.kept: frozenset[str] = frozenset()

    def is_running(self) -> bool:
        """Whether the server runs."""
        return self._cluster.processes.is_running(self._server.replicas[0].name)

    def prepared(self, content: str) -> FairgateServer:
        """Return the server under this policy, registered for it, with the whole cluster in its view."""
        team_a, team_b = _make_teams(self._cluster)
        running = dataclasses.replace(self._server, team_a=team_a, team_b=team_b)
        serving.write_policy(running.policy, content)
        if not self.is_running():
            running.start()
        serving.wait_policy(self._cluster, running.policy, lambda: running.get("/readyz"))
        self._register(running)
        _wait_seen(running)
        running.count_from_now()
        return running

    def leave(self) -> None:
        """Stop the server and remove its registration."""
        for path in self.kept:
            delete(self._cluster, path)
        self.kept, self._printed = frozenset(), ""
        wait_for(self._cluster, lambda: not serving.is_called(self._cluster), what="the API server calls no webhook")
        self._server.stop()
        delete_state(self._cluster)

    def _register(self, running: FairgateServer) -> None:
        printed = serving.manifests(policy=running.policy, url=running.url, ca=running.ca)
        if printed == self._printed:
            return
        registered = self.kept
        self.kept = frozenset(filter(None, map(serving.admission_path, yaml.safe_load_all(printed))))
        for path in registered - self.kept:
            delete(self._cluster, path)
        self._printed = printed
        serving.register(self._cluster, printed, namespace=running.team_a)


def _gpus(node: Mapping[str, Any]) -> float:
    """What a node's whole GPUs count; under MIG strategy single, of which tests make sevenths, they are slices."""
    pieces = int(node["status"]["allocatable"].get(GPU, 0))
    return pieces / 7 if "-MIG-1g" in node["metadata"].get("labels", {}).get("nvidia.com/gpu.product", "") else pieces


def _wait_seen(running: FairgateServer) -> None:
    """Wait until the server knows the existing nodes, and that the pods of earlier scenarios are gone."""
    nodes = running.cluster.api.list("/api/v1/nodes")
    has_devices = HAS_DEVICES and bool(running.cluster.api.list(f"{DEVICES}/resourceslices"))
    gpus = sum(map(_gpus, nodes))

    def is_seen() -> bool:
        text = running.get("/metrics")
        assert all(serving.total(text, "fairgate_gpus_charged", team=team) == 0 for team in "ab")
        capacity = serving.total(text, "fairgate_gpus_capacity", resource=GPU)
        assert capacity == gpus or (capacity > gpus and has_devices)
        assert serving.total(text, "fairgate_gpus_closed", resource=GPU) == 0 or not _all_open(nodes)
        return True

    wait_for(running.cluster, is_seen, what="the server sees this cluster")


def _all_open(nodes: list[dict[str, Any]]) -> bool:
    return not any(node["spec"].get("unschedulable") for node in nodes)


@contextmanager
def _own(running: FairgateServer) -> Iterator[FairgateServer]:
    """Run a Fairgate of the scenario's own."""
    cluster, replicas = running.cluster, running.replicas
    name = f"{replicas[0].name}-service"
    ports = [urlsplit(replica.url).port for replica in replicas]
    service = balancing(cluster.processes, name, urlsplit(running.url).port, *ports)
    with nullcontext() if len(replicas) == 1 else service:
        try:
            running.start()
            printed = serving.manifests(policy=running.policy, url=running.url, ca=running.ca)
            serving.register(cluster, printed, namespace=running.team_a)
            yield running
        finally:
            for number, replica in enumerate(replicas):
                if cluster.processes.is_running(replica.name):
                    running.resume(number)
            running.stop()


def _make_teams(cluster: ControlPlane) -> tuple[str, str]:
    suffix = secrets.token_hex(3)
    return make_namespace(cluster, f"team-a-{suffix}"), make_namespace(cluster, f"team-b-{suffix}")


def _new_server(
    cluster: ControlPlane,
    team_a: str,
    team_b: str,
    *,
    replicas: int = 1,
    kubeconfig: Path | None = None,
    has_history: bool = False,
) -> FairgateServer:
    """Give names, folders and ports to servers that do not run yet."""
    suffix = secrets.token_hex(3)
    folder = cluster.folder / f"fairgate-{suffix}"
    policy, certs = folder / "policy", folder / "certs"
    front, *ports = free_ports(replicas + 1)

    def replica(number: int, port: int) -> Replica:
        serve = ("serve", "--policy", policy, "--kubeconfig", kubeconfig or cluster.kubeconfig)
        listen = ("--listen", f"127.0.0.1:{port}", "--certs", certs)
        pace = ("--drain-seconds", "0", "--lease-seconds", str(LEASE_SECONDS))
        history = ("--history", folder / f"history-{number}.db") if has_history else ()
        command = (*FAIRGATE, *serve, *listen, *pace, *history)
        return Replica(f"fairgate-{suffix}-{number}", command, f"https://127.0.0.1:{port}")

    made = tuple(replica(number, port) for number, port in enumerate(ports))
    url = made[0].url if replicas == 1 else f"https://127.0.0.1:{front}"
    return FairgateServer(cluster, made, url, certs / "ca.crt", policy, team_a, team_b)
