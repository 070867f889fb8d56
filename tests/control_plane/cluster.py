"""A whole control plane as one object: starts it, hands out access to it, stops and restarts its parts."""

from __future__ import annotations

import functools
import http.client
import json
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.control_plane import commands, egress
from tests.control_plane.api import Api, ApiError
from tests.control_plane.build import binary_path
from tests.control_plane.commands import API_SERVER, COMPONENTS, CONTROLLER_MANAGER, ETCD, Ports
from tests.control_plane.kubeconfig import kubeconfig
from tests.control_plane.kubectl import Kubectl
from tests.control_plane.pki import make_authority
from tests.control_plane.processes import ComponentError, Processes, free_ports
from tests.control_plane.versions import CONTROL_PLANE

START_SECONDS = 120  # 4 are enough on an idle machine; ten builds may run beside us
POLL_SECONDS = 0.05

AUDIT_POLICY = {
    "rules": [{"level": "Request"}],
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
}


def find_binaries() -> dict[str, Path]:
    """Return the path of every binary of the control plane; a BuildError explains how to build a missing one."""
    return {
        program.binary: binary_path(recipe, program.binary) for recipe in CONTROL_PLANE for program in recipe.programs
    }


class Standing(Protocol):
    """What a test may leave running on a control plane for the next one, with its objects."""

    @property
    def kept(self) -> frozenset[str]:
        """The API paths of its objects."""

    def leave(self) -> None:
        """Stop it and delete its objects."""


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK on free loopback ports.

    Nothing of it outlives the Python process that made it. `extra_args` adds flags to a component's command line,
    `environment` variables to the environment of all.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path] | None = None,
        *,
        extra_args: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
        audit: bool = False,
    ):
        binaries = binaries or find_binaries()
        self.processes = Processes()
        self.folder = self.processes.folder
        self.ports = Ports(*free_ports(3))
        self.server = f"https://127.0.0.1:{self.ports.api_server}"
        self.authority = make_authority()
        self.token = secrets.token_hex(16)
        self.kubeconfig = self.folder / "kubeconfig"
        self.api = self._client()
        self.standing: Standing | None = None
        self._clients: dict[tuple[str, int], Api] = {}
        self.kubectl = Kubectl(
            binaries["kubectl"], kubeconfig=self.kubeconfig, environment=self.processes.environment()
        )
        self._commands = commands.component_commands(binaries, folder=self.folder, ports=self.ports, audit=audit)
        self._environment = environment or {}
        self._extra_args = {name: tuple(arguments) for name, arguments in (extra_args or {}).items()}
        try:
            self._write_files()
            self._start_all()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything and remove the folder; safe to call twice."""
        for api in (self.api, *self._clients.values()):
            api.close()
        self.processes.close()

    def start(self, name: str, *extra: str) -> None:
        """Start a component that does not run and wait until it serves; flags in `extra` apply until its next start."""
        arguments = [*self._commands[name], *self._extra_args.get(name, ()), *extra]
        self.processes.start(name, arguments, env=self._environment)
        if name == ETCD:
            self._until(name, functools.partial(_answers, self.ports.etcd), "does not serve")
        elif name == API_SERVER:
            self._until(name, self._is_api_ready, "is not ready")

    def stop(self, name: str, number: int = signal.SIGTERM, *, timeout: float = 30) -> None:
        """End a component with a signal (SIGTERM, SIGKILL) and wait for its end."""
        self.processes.stop(name, number, timeout=timeout)

    def restart(self, name: str, *extra: str, number: int = signal.SIGKILL) -> None:
        """Stop and start a component."""
        self.stop(name, number)
        self.start(name, *extra)

    def pause(self, name: str) -> None:
        """Freeze a component with SIGSTOP: its connections stay open without responses."""
        self.processes.send_signal(name, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.processes.pids()[name]}/task")
        self._until(name, lambda: all(map(_is_stopped, tasks.glob("*/stat"))), "does not stop")

    def resume(self, name: str) -> None:
        """Resume a frozen component."""
        self.processes.send_signal(name, signal.SIGCONT)

    def revive(self) -> None:
        """Resume or start again whatever a test froze or ended."""
        for name in COMPONENTS:
            if self.processes.is_running(name):
                self.resume(name)
            else:
                self.start(name)

    def acting_as(self, user: str, *, connection: int = 0) -> Api:
        """The API as a plain user, by impersonation; closed with the control plane.

        Each connection sends one request at a time.
        """
        if (user, connection) not in self._clients:
            self._clients[user, connection] = self._client(acts_as=user)
        return self._clients[user, connection]

    @property
    def kept(self) -> frozenset[str]:
        """The API paths of what stays on the control plane from test to test."""
        return self.standing.kept if self.standing else frozenset()

    def vacate(self) -> None:
        """End what stays from test to test."""
        standing, self.standing = self.standing, None
        if standing is not None:
            standing.leave()

    def user_kubeconfig(self, user: str, *, groups: Sequence[str] = (), namespace: str = "default") -> Path:
        """A kubeconfig that acts as a plain user; RBAC decides what the user may do."""
        groups = ["system:authenticated", *groups]
        return self._store_kubeconfig(token=self.token, namespace=namespace, user=user, groups=groups)

    def service_account_kubeconfig(self, namespace: str, name: str = "default") -> Path:
        """A kubeconfig with a fresh token of a service account."""
        return self.token_kubeconfig(self.service_account_token(namespace, name), namespace=namespace)

    def token_kubeconfig(self, token: str, *, namespace: str) -> Path:
        """A kubeconfig with this token."""
        return self._store_kubeconfig(token=token, namespace=namespace)

    def service_account_token(self, namespace: str, name: str = "default") -> str:
        """A token of a service account, good for a day."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}}
        return self.api.create(path, body)["status"]["token"]

    def audit_events(self) -> list[dict]:
        """What the audit log holds so far; needs `audit=True`."""
        return [json.loads(line) for line in commands.audit_log(self.folder).read_text().splitlines()]

    def _client(self, *, acts_as: str = "") -> Api:
        return Api(port=self.ports.api_server, ca_pem=self.authority.pem, token=self.token, acts_as=acts_as)

    def _start_all(self) -> None:
        for name in COMPONENTS:
            self.start(name)
        self._until(CONTROLLER_MANAGER, self._has_default_service_account, "has not made a service account")
        for name in COMPONENTS:
            self.processes.check_running(name)

    def _store_kubeconfig(self, **details: object) -> Path:
        path = self.folder / f"kubeconfig-{secrets.token_hex(4)}"
        path.write_text(kubeconfig(server=self.server, ca_pem=self.authority.pem, **details))
        return path

    def _write_files(self) -> None:
        pki = self.folder / "pki"
        pki.mkdir()
        pair = self.authority.issue("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        files = {
            "ca.crt": self.authority.pem,
            "apiserver.crt": pair.certificate,
            "apiserver.key": pair.key,
            "service-accounts.key": signing_key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            "tokens.csv": f'{self.token},admin,admin,"system:masters"\n'.encode(),
            "audit.json": json.dumps(AUDIT_POLICY).encode(),
            "egress.json": egress.configuration(self.folder).encode(),
        }
        for name, content in files.items():
            (pki / name).write_bytes(content)
        self.kubeconfig.write_text(kubeconfig(server=self.server, ca_pem=self.authority.pem, token=self.token))

    def _is_api_ready(self) -> bool:
        try:
            return self.api.get("/readyz") == "ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def _has_default_service_account(self) -> bool:
        return self.api.exists("/api/v1/namespaces/default/serviceaccounts/default")

    def _until(self, name: str, is_done: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_done():
            self.processes.check_running(name)
            if time.monotonic() > deadline:
                raise ComponentError(self.processes.describe(name, f"{complaint} after {START_SECONDS} s"))
            time.sleep(POLL_SECONDS)


def _is_stopped(stat: Path) -> bool:
    """Whether a thread is stopped: a busy machine may run it for a moment after the signal."""
    return stat.read_text().rpartition(")")[2].split()[0] == "T"


def _answers(port: int) -> bool:
    """Whether etcd on this port reports itself healthy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
