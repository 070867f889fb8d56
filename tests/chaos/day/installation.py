"""Fairgate as a cluster has it: three servers behind a Service, two evictors, certificates in a Secret, histories.

The Service and the way to the API server are processes of their own, so that both can be cut.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.day.kubelet import Kubelet
from tests.control_plane.balancer import balancing
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import make_namespace, wait_for
from tests.scenarios import serving

SYSTEM, OWNER, BORROWER, PLAIN = "fairgate-system", "red", "blue", "plain"
SECRET = "fairgate-certs"
SERVERS = ("server-0", "server-1", "server-2")
EVICTORS = ("evictor-0", "evictor-1")
SERVICE, WIRE = "fairgate-service", "fairgate-wire"
OWNER_SHARE, OWNER_LIMIT, BORROWER_SHARE, BORROWER_LIMIT = 14, 16, 4, 20
POLICY = """\
reclaim: {notice: 1s, minimumRuntime: 0s}
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """The running processes of Fairgate."""

    cluster: ControlPlane
    folder: Path
    kubelet: Kubelet

    def history(self, server: str) -> Path:
        """The file in which a server records usage."""
        return self.folder / f"{server}.db"

    def trusted(self) -> bytes:
        """The CAs by which the API server knows the servers, PEM."""
        found = self.cluster.api.get(f"{ADMISSION}/validatingwebhookconfigurations/fairgate")
        return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])

    def is_complete(self) -> bool:
        """Whether every process reports itself."""
        reports = self.cluster.api.get("/apis/fairgate.dev/v1alpha1/reports/replicas")["replicas"]
        return len(reports) >= len(self.kubelet.commands)


@contextmanager
def installed(cluster: ControlPlane, *flags: str) -> Iterator[Installation]:
    """Run Fairgate until the end of the block, registered and ready; `flags` are added for each server."""
    folder = cluster.folder / "fairgate"
    for namespace in (SYSTEM, OWNER, BORROWER, PLAIN):
        make_namespace(cluster, namespace)
    serving.write_policy(folder / "policy", _policy())
    front, wire, *ports = free_ports(2 + len(SERVERS))
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.server, f"https://127.0.0.1:{wire}"))
    common = ("--policy", folder / "policy", "--kubeconfig", kubeconfig, "--namespace", SYSTEM)
    program = (sys.executable, "-m", "tests.chaos.day.process")
    commands = {
        name: (
            *(*program, "serve", *common, "--listen", f"127.0.0.1:{port}", "--certs-secret", SECRET),
            *("--drain-seconds", "1", "--history", folder / f"{name}.db", *flags),
        )
        for name, port in zip(SERVERS, ports, strict=True)
    } | dict.fromkeys(EVICTORS, (*program, "evict", *common))
    kubelet = Kubelet(cluster.processes, commands)
    running = Installation(cluster, folder, kubelet)
    with ExitStack() as stack:
        stack.enter_context(balancing(cluster.processes, WIRE, wire, cluster.ports.api_server))
        stack.enter_context(balancing(cluster.processes, SERVICE, front, *ports))
        stack.enter_context(kubelet.running())
        printed = serving.manifests(policy=folder / "policy", url=f"https://127.0.0.1:{front}")
        serving.register(cluster, printed, namespace=OWNER)
        wait_for(cluster, running.is_complete, what="every process of Fairgate reports")
        yield running


def _policy() -> str:
    teams = [
        {"name": OWNER, "namespaces": [OWNER], "gpus": {"guaranteed": OWNER_SHARE, "limit": OWNER_LIMIT}},
        {"name": BORROWER, "namespaces": [BORROWER], "gpus": {"guaranteed": BORROWER_SHARE, "limit": BORROWER_LIMIT}},
    ]
    return serving.policy_of(teams, more=POLICY)
