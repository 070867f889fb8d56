"""Several replicas of `fairgate serve` behind a load balancer, registered with one API server; tests kill them."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.control_plane import balancer
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import make_namespace, wait_for
from tests.scenarios import serving
from tests.scenarios.serving import FAIRGATE, ROOT


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds before another replica takes over a Lease, or drops a charge without a pod; 0: as in production."""

    lease: int = 0
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Team:
    """A team with one namespace of its own."""

    name: str
    namespace: str
    limit: int
    department: str = ""


@dataclass(frozen=True, slots=True)
class Department:
    """A department with a limit over its teams, by their numbers, and those of the departments below it."""

    name: str
    limit: int
    teams: tuple[int, ...] = ()
    parent: str = ""


@dataclass(slots=True)
class Replicas:
    """The replicas by number, each with a port; `wrong_clock` is by how many seconds a replica's clock is off.

    They reach the API server through a relay of their own, so that the connection can be broken.
    """

    cluster: ControlPlane
    folder: Path
    url: str
    ports: list[int]
    teams: list[Team]
    wire_port: int
    drain_seconds: float
    wrong_clock: Mapping[int, int] = field(default_factory=dict)
    waits: Waits = Waits()
    departments: Sequence[Department] = ()
    program: Sequence[str] = FAIRGATE

    @property
    def limits(self) -> dict[str, int]:
        """The limits of the teams' namespaces and of the departments."""
        return {each.namespace: each.limit for each in self.teams} | {
            each.name: each.limit for each in self.departments
        }

    @property
    def above(self) -> dict[str, list[str]]:
        """The departments above each namespace."""
        parents = {each.name: each.parent for each in self.departments}
        return {team.namespace: list(_chain(team.department, parents)) for team in self.teams}

    @property
    def policy(self) -> Path:
        return self.folder / "policy"

    @property
    def ca(self) -> Path:
        return self.folder / "certs" / "ca.crt"

    @property
    def wire(self) -> str:
        return f"{self.folder.name}-wire"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def name(self, number: int) -> str:
        return f"{self.folder.name}-{number}"

    def start(self, number: int) -> None:
        """Start a replica and wait until it is ready."""
        self.launch(number)
        self.wait_ready(number)

    def launch(self, number: int) -> None:
        other = (self.wrong_clock.get(number, 0), self.waits.lease, self.waits.unseen)
        fairgate = (sys.executable, "-m", "tests.chaos.replica", *map(str, other)) if any(other) else self.program
        listen = f"127.0.0.1:{self.ports[number]}"
        command = [
            *(*fairgate, "serve", "--policy", self.policy, "--kubeconfig", self.kubeconfig),
            *("--listen", listen, "--certs", self.folder / "certs", "--drain-seconds", str(self.drain_seconds)),
        ]
        self.cluster.processes.start(self.name(number), command, cwd=ROOT)

    def wait_ready(self, number: int, *, timeout: float = 60) -> None:
        """Wait until a replica is ready; the end of its log is raised if it ended instead."""

        def is_ready() -> bool:
            self.cluster.processes.check_running(self.name(number))
            return '"ready":true' in self.get(number, "/readyz")

        wait_for(
            self.cluster,
            is_ready,
            what=f"{self.name(number)} ready",
            timeout=timeout,
        )

    def stop(self, number: int, by: signal.Signals = signal.SIGTERM) -> None:
        """End a replica and wait for its end; SIGTERM lets it drain."""
        self.cluster.processes.end(self.name(number), by, timeout=self.drain_seconds + 45)

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send SIGSTOP or SIGCONT."""
        self.cluster.processes.send_signal(self.name(number), what)

    def cut(self, *, seconds: float = 0.0) -> None:
        """Break every connection between the replicas and the API server; new ones fail for so long."""
        self.cluster.processes.stop(self.wire, signal.SIGKILL)
        time.sleep(seconds)
        balancer.start(self.cluster.processes, self.wire, self.wire_port, self.cluster.ports.api_server)

    def get(self, number: int, path: str) -> str:
        """GET one of a replica's endpoints."""
        return serving.get(f"https://127.0.0.1:{self.ports[number]}{path}", ca=self.ca)

    def register(self) -> None:
        """Apply the webhook configurations and wait until the API server calls the webhooks."""
        printed = serving.manifests(policy=self.policy, url=self.url, ca=self.ca)
        serving.register(self.cluster, printed, namespace=self.teams[0].namespace)

    def unregister(self) -> None:
        """Remove the webhook configurations and wait until the API server calls no webhook."""
        self.cluster.kubectl("delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "--all")
        namespace = self.teams[0].namespace
        wait_for(
            self.cluster, lambda: not serving.is_asked(self.cluster, namespace), what="the API server calls no webhook"
        )

    def charged(self, number: int) -> dict[str, float]:
        """How many GPUs a replica's ledger has for each team, over both tiers."""
        metrics = self.get(number, "/metrics")
        return {team.name: serving.total(metrics, "fairgate_gpus_charged", team=team.name) for team in self.teams}

    def metric(self, number: int, name: str) -> float:
        """The sum of a metric over all its labels."""
        return serving.total(self.get(number, "/metrics"), name)

    def log(self, number: int, *, lines: int = 50) -> str:
        return self.cluster.processes.log(self.name(number), lines=lines)


@contextmanager
def replicas(
    cluster: ControlPlane,
    count: int = 3,
    *,
    teams: int = 5,
    limit: int = 20,
    drain_seconds: float = 3.0,
    wrong_clock: Mapping[int, int] | None = None,
    waits: Waits | None = None,
    others: Sequence[Mapping[str, object]] = (),
    departments: Sequence[Department] = (),
    policy: str = "",
    is_direct: bool = False,
) -> Iterator[Replicas]:
    """Run replicas that guard teams with a limit and half of it guaranteed, until the end of the block.

    `others` are further teams as in a policy, `policy` adds sections as YAML. `is_direct` is for measurements: one
    replica without balancer and relay, which take processor time that a Service of the kernel's does not take.
    """
    assert count == 1 or not is_direct, "only a single replica can be called without a balancer"
    suffix = secrets.token_hex(3)
    front, wire_port, *ports = free_ports(count + 2)
    if is_direct:
        front, wire_port = ports[0], cluster.ports.api_server
    homes = {number: each.name for each in departments for number in each.teams}
    known = [
        Team(f"t{n}", make_namespace(cluster, f"chaos-{n}-{suffix}"), limit, homes.get(n, "")) for n in range(teams)
    ]
    folder = cluster.folder / f"replicas-{suffix}"
    running = Replicas(
        *(cluster, folder, f"https://127.0.0.1:{front}", ports, known, wire_port, drain_seconds),
        *(dict(wrong_clock or {}), waits or Waits(), departments),
    )
    more = policy + "".join(["departments:\n" if departments else "", *map(_department, departments)])
    serving.write_policy(running.policy, serving.policy_of([*map(_share, known), *others], more=more))
    wired = cluster.kubeconfig.read_text().replace(cluster.server, f"https://127.0.0.1:{wire_port}")
    running.kubeconfig.write_text(wired)
    processes, api_server = cluster.processes, cluster.ports.api_server
    with ExitStack() as stack:
        if not is_direct:
            stack.enter_context(balancer.balancing(processes, running.wire, wire_port, api_server))
            stack.enter_context(balancer.balancing(processes, f"{folder.name}-service", front, *ports))
        try:
            running.start(0)  # it fills the folder of certificates
            for number in range(1, count):
                running.launch(number)
            for number in range(1, count):
                running.wait_ready(number)
            running.register()
            yield running
        finally:
            cluster.kubectl("delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "--all")
            for number in range(count):
                with suppress(Exception):
                    running.signal(number, signal.SIGCONT)
                running.stop(number, signal.SIGKILL)


def _chain(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    while name:
        yield name
        name = parents[name]


def _department(each: Department) -> str:
    above = f", parent: {each.parent}" if each.parent else ""
    return f"  - {{name: {each.name}{above}, gpus: {{limit: {each.limit}}}}}\n"


def _share(team: Team) -> dict[str, object]:
    return {
        **({"department": team.department} if team.department else {}),
        "name": team.name,
        "namespaces": [team.namespace],
        "gpus": {"guaranteed": team.limit // (5 if team.department else 2), "limit": team.limit},
    }
