"""Runs `fairgate serve` against the test control plane and registers its webhooks, as an operator would."""

from __future__ import annotations

import json
import secrets
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import list_pods, make_namespace, wait_for

TEAM, TIER, DECISION = "fairgate.dev/team", "fairgate.dev/tier", "fairgate.dev/decision"
TEAM_LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Gate:
    """A running Fairgate and the namespaces of its two teams."""

    cluster: ControlPlane
    name: str
    command: tuple[object, ...]
    url: str
    ca: Path
    policy: Path
    team_a: str
    team_b: str

    def get(self, path: str) -> str:
        """GET one of its endpoints."""
        context = ssl.create_default_context(cafile=self.ca)
        with urllib.request.urlopen(f"{self.url}{path}", context=context, timeout=10) as answer:
            return answer.read().decode()

    def charged(self, team: str) -> float:
        """How many GPUs its ledger has for a team, over both tiers."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith("fairgate_gpus_charged{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'team="{team}"' in line)

    def tiers(self, namespace: str) -> list[str]:
        """The tier labels of a namespace's pods, by the pods' names."""
        pods = sorted(list_pods(self.cluster, namespace), key=lambda found: found["metadata"]["name"])
        return [found["metadata"]["labels"][TIER] for found in pods]

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        self.cluster.processes.start(self.name, self.command, cwd=ROOT)
        wait_for(self.cluster, lambda: '"ready":true' in self.get("/readyz"), what=f"{self.name} ready")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server, with SIGKILL if so wished; its webhooks stay registered."""
        if self.cluster.processes.is_running(self.name):
            self.cluster.processes.stop(self.name, number=number, timeout=10)


@contextmanager
def gate(
    cluster: ControlPlane,
    *,
    limit_a: object = 20,
    limit_b: object = 20,
    policy: str = "",
    kubeconfig: Path | None = None,
) -> Iterator[Gate]:
    """Serve for two teams with 20 guaranteed GPUs each, until the end of the block.

    `policy` adds sections as YAML; `kubeconfig` is whom Fairgate runs as, by default an admin.
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
    (port,) = free_ports(1)
    url, name = f"https://127.0.0.1:{port}", f"fairgate-{suffix}"
    fairgate = (sys.executable, "-m", "webhook")
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
    running = Gate(cluster, name, command, url, certs / "ca.crt", policies, team_a, team_b)
    try:
        running.start()
        manifests = subprocess.run(
            [*fairgate, "manifests", "--policy", policies, "--url", url, "--ca", running.ca],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        cluster.kubectl("apply", "-f", "-", stdin=manifests)
        wait_for(cluster, lambda: _is_asked(running), what="the API server asks Fairgate")
        yield running
    finally:
        running.stop()
        for ledger in cluster.api.list(TEAM_LEDGERS) if cluster.api.exists(TEAM_LEDGERS) else ():
            cluster.api.delete(f"{TEAM_LEDGERS}/{ledger['metadata']['name']}")


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
