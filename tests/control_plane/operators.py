"""Runs real controllers against the control plane, so that tests meet pods that other projects create.

recipes.toml lists them, and how each is run. All but the MPI operator are controller-runtime managers: their serving
certificate lies in $TMPDIR/k8s-webhook-server/serving-certs; each gets a folder of its own as $TMPDIR. Their custom
resource definitions stay installed when they end, except one that two operators have.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import yaml

from tests.control_plane.assets import recipe_folder
from tests.control_plane.build import binary_path
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.versions import RECIPES, Recipe, Run
from tests.control_plane.waiting import wait_for

START_SECONDS = 90
T = TypeVar("T")


@contextlib.contextmanager
def operator(control_plane: ControlPlane, name: str) -> Iterator[None]:
    """Install and run an operator until the end of the block."""
    recipe = RECIPES[name]
    assert recipe.run is not None, f"{name} is no operator"
    started = _Operator(control_plane, recipe, recipe.run)
    with contextlib.ExitStack() as undo:
        started.install(undo)
        started.start(undo)
        started.wait_until_ready(undo)
        yield


class _Operator:
    def __init__(self, control_plane: ControlPlane, recipe: Recipe, run: Run) -> None:
        self._cluster, self._recipe, self._run = control_plane, recipe, run
        self._kept = recipe_folder(recipe)
        self._folder = control_plane.folder / "operators" / recipe.name
        self._certificates = self._folder / "k8s-webhook-server" / "serving-certs"
        self._certificates.mkdir(parents=True, exist_ok=True)
        self._webhook, self._health = free_ports(2)

    def install(self, undo: contextlib.ExitStack) -> None:
        """Put everything into the API server that the operator expects there, and into its folder."""
        run, kubectl = self._run, self._cluster.kubectl
        if run.replaces:
            delete = ("delete", "--ignore-not-found", "crd", run.replaces)
            kubectl(*delete)
            undo.callback(kubectl, *delete)
        for option, path in map(str.split, run.apply):
            kubectl("apply", "--server-side", option, self._kept / path)
        if run.serves:
            wait_for(lambda: self._cluster.api.list(run.serves) == [], what=f"{run.serves} served")
        if run.lease:
            namespace, name = run.lease.split("/")
            kubectl("delete", "--ignore-not-found", "-n", namespace, "lease", name)
        if run.secret:
            self._create_secret(*run.secret.split("/"))
        if run.settings is not None:
            (self._folder / "config.yaml").write_text(json.dumps(self._settings(run.settings)))
        if run.webhooks:
            self._register(undo)

    def _create_secret(self, namespace: str, name: str) -> None:
        if not self._cluster.api.exists(f"/api/v1/namespaces/{namespace}"):
            self._cluster.kubectl("create", "namespace", namespace)
        if not self._cluster.api.exists(f"/api/v1/namespaces/{namespace}/secrets/{name}"):
            self._cluster.kubectl("create", "secret", "generic", name, "-n", namespace)

    def _settings(self, own: dict) -> dict:
        return {
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            **own,
            "webhook": {"port": self._webhook} | own.get("webhook", {}),
        }

    def _register(self, undo: contextlib.ExitStack) -> None:
        """Register its webhooks before the start, which takes seconds: the API server has noticed them by then."""
        pair = self._cluster.authority.issue()
        (self._certificates / "tls.crt").write_bytes(pair.certificate)
        (self._certificates / "tls.key").write_bytes(pair.key)
        configurations = self._local_webhooks()
        self._cluster.kubectl.apply(configurations)
        for made in configurations:
            undo.callback(self._cluster.kubectl, "delete", made["kind"], made["metadata"]["name"])

    def _local_webhooks(self) -> list[dict]:
        """The webhook configurations of its kustomization, calling 127.0.0.1 instead of a Service."""
        rendered = yaml.safe_load_all(self._cluster.kubectl("kustomize", self._kept / self._run.webhooks))
        configurations = [item for item in rendered if "webhooks" in item]
        bundle = base64.b64encode(self._cluster.authority.pem).decode()
        for configuration in configurations:
            configuration["metadata"] = {"name": f"{self._recipe.name}-{configuration['metadata']['name']}"}
            for webhook in configuration["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{self._webhook}{path}", "caBundle": bundle}
        return configurations

    def start(self, undo: contextlib.ExitStack) -> None:
        """Start it under the control plane's supervisor."""
        kubeconfig = self._cluster.kubeconfig
        here = Path(__file__).parent
        places = {"kubeconfig": kubeconfig, "health": self._health, "webhook": self._webhook, "here": here}
        binary = binary_path(self._recipe, self._recipe.programs[0].binary)
        command = [binary, *(flag.format(**places) for flag in self._run.flags)]
        env = {"TMPDIR": str(self._folder), "KUBECONFIG": str(kubeconfig)}
        self._cluster.processes.start(self._recipe.name, command, env=env, cwd=self._folder)
        undo.callback(self._cluster.processes.end, self._recipe.name)

    def wait_until_ready(self, undo: contextlib.ExitStack) -> None:
        """Wait until it works, and leave only what tests are to meet."""
        run, api, kubectl = self._run, self._cluster.api, self._cluster.kubectl
        if run.secret:
            namespace, name = run.secret.split("/")
            secret = f"/api/v1/namespaces/{namespace}/secrets/{name}"
            for file, content in self._wait(lambda: api.get(secret)["data"], "its Secret").items():
                (self._certificates / file).write_bytes(base64.b64decode(content))
        if run.lease:
            namespace, name = run.lease.split("/")
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
            self._wait(lambda: api.get(lease)["spec"].get("holderIdentity"), "holds its lease")
        else:
            self._wait(lambda: _is_ready(self._health), "ready")
        if run.unwanted:
            api.delete(f"{ADMISSION}/{run.unwanted}")
        if run.probe is not None:
            path = f"/apis/{run.probe['apiVersion']}/namespaces/default/{run.probe['kind'].lower()}s"
            self._wait(lambda: api.create(path, run.probe, dryRun="All"), "its webhooks answer")
        if run.then:
            self._wait(lambda: kubectl("apply", "-f", self._kept / run.then), "its webhooks answer")
            undo.callback(kubectl, "delete", "-f", self._kept / run.then, "--wait=false")

    def _wait(self, predicate: Callable[[], T], what: str) -> T:
        """Wait for a condition, and fail at once if the operator has ended."""
        name, processes = self._recipe.name, self._cluster.processes

        def check() -> T:
            processes.check_running(name)
            return predicate()

        return wait_for(check, what=f"{name}: {what}", timeout=START_SECONDS, describe=lambda: processes.log(name))


def _is_ready(port: int) -> bool:
    """Whether a controller-runtime manager answers its readiness probe."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()
