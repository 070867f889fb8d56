"""Several replicas of Fairgate behind one address, as behind a Service, with their certificates in a Secret."""

from __future__ import annotations

import base64
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography import x509

from tests.control_plane.balancer import balancing
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import make_namespace, wait_for
from tests.scenarios import serving
from tests.scenarios.serving import FAIRGATE, ROOT

RIGHTS = ROOT / "docs" / "reference" / "rights.yaml"
ROLES = ("fairgate-server", "fairgate-certs", "fairgate-registration")
SECRET = "fairgate-certs"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Running replicas, the address in front of them, and the namespace that holds their Secret and their pods."""

    cluster: ControlPlane
    names: tuple[str, ...]
    ports: tuple[int, ...]
    url: str
    namespace: str
    policy: Path
    commands: tuple[tuple[object, ...], ...]

    def start(self) -> None:
        """Start all of them at once."""
        for name, command in zip(self.names, self.commands, strict=True):
            self.cluster.processes.start(name, command, cwd=ROOT)

    def files(self) -> dict[str, bytes]:
        """The Secret as it is now."""
        data = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}")["data"]
        return {name: base64.b64decode(content) for name, content in data.items()}

    def leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.files()["tls.crt"])

    def ca(self) -> x509.Certificate:
        """The CA that signs."""
        return x509.load_pem_x509_certificates(self.files()["ca.crt"])[0]

    def trusted(self) -> str:
        """The CAs that the API server trusts for these webhooks."""
        found = self.cluster.api.get(f"{ADMISSION}/validatingwebhookconfigurations/fairgate")
        return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()

    def register(self) -> None:
        """Apply the output of `fairgate manifests`; wait until the API server trusts the CA and calls the webhooks."""
        serving.register(self.cluster, self.manifests(), namespace=self.namespace)

    def manifests(self) -> str:
        return serving.manifests(policy=self.policy, url=self.url)

    def events(self, event: str) -> list[dict[str, object]]:
        """What any of them logged under this name, each line once."""
        return [line for name in self.names for line in self.cluster.processes.logged(name, event)]


@contextmanager
def replicas(cluster: ControlPlane, *flags: object, count: int = 3) -> Iterator[Replicas]:
    """Run replicas until the end of the block, with the rights that the documentation gives them.

    `flags` are added to each command line.
    """
    suffix = secrets.token_hex(3)
    namespace = make_namespace(cluster, f"team-{suffix}")
    policy = cluster.folder / f"policy-{suffix}"
    teams = [{"name": "a", "namespaces": [namespace], "gpus": {"guaranteed": 1000, "limit": "unlimited"}}]
    serving.write_policy(policy, serving.policy_of(teams))
    front, *ports = free_ports(count + 1)
    names = tuple(f"fairgate-{suffix}-{number}" for number in range(count))
    serve = (*FAIRGATE, "serve", "--policy", policy, "--kubeconfig", _grant(cluster, namespace), "--drain-seconds", "0")
    where = ("--certs-secret", SECRET, "--namespace", namespace)
    commands = tuple((*serve, *where, "--listen", f"127.0.0.1:{port}", *flags) for port in ports)
    running = Replicas(cluster, names, tuple(ports), f"https://127.0.0.1:{front}", namespace, policy, commands)
    with balancing(cluster.processes, f"fairgate-{suffix}-service", front, *ports):
        running.start()
        try:
            wait_for(cluster, lambda: all(is_listening(port) for port in ports), what="all replicas listening")
            yield running
        finally:
            for name in names:
                cluster.processes.end(name)


def _grant(cluster: ControlPlane, namespace: str) -> Path:
    """Give a service account exactly the rights that docs/reference/rights.yaml lists; return its kubeconfig."""
    listed = yaml.safe_load_all(RIGHTS.read_text().replace("fairgate-system", namespace))
    roles = [each for each in listed if each["metadata"]["name"] in ROLES]
    robot = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    bindings = [
        {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": {**role["metadata"], "name": f"{role['metadata']['name']}-{namespace}"},
            "roleRef": {
                "kind": role["kind"],
                "name": role["metadata"]["name"],
                "apiGroup": "rbac.authorization.k8s.io",
            },
            "subjects": [robot],
        }
        for role in roles
    ]
    cluster.kubectl.apply([*roles, *bindings])
    return cluster.service_account_kubeconfig(namespace)


def is_listening(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


@dataclass
class Handshakes:
    """Shakes hands with every replica over and over, trusting what the API server trusted `lag_seconds` ago."""

    running: Replicas
    lag_seconds: float
    done: int = 0
    failed: list[str] = field(default_factory=list)
    serials: set[int] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Handshakes:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        known = [(time.monotonic(), self.running.trusted())]
        while not self._stop.wait(0.02):
            known.append((time.monotonic(), self.running.trusted()))
            while len(known) > 1 and known[1][0] <= time.monotonic() - self.lag_seconds:
                known.pop(0)
            for port in self.running.ports:
                self._shake(port, known[0][1])

    def _shake(self, port: int, trusted: str) -> None:
        context = ssl.create_default_context(cadata=trusted)
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
            ):
                self.serials.add(x509.load_der_x509_certificate(secured.getpeercert(binary_form=True)).serial_number)
        except OSError as error:
            self.failed.append(f"{port}: {error}")
        self.done += 1
