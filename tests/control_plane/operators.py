"""Runs real controllers against the control plane, so that tests meet pods that nobody here wrote.

Both are controller-runtime managers: their serving certificate lies in $TMPDIR/k8s-webhook-server/serving-certs;
each gets a folder of its own as $TMPDIR. Their custom resource definitions stay installed when they end.
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
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod_spec
from tests.control_plane.processes import free_ports
from tests.control_plane.versions import JOBSET, TRAINING_OPERATOR, Recipe
from tests.control_plane.waiting import wait_for

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SECRET = "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
VALIDATOR = f"{ADMISSION}/validatingwebhookconfigurations/validator.training-operator.kubeflow.org"
START_SECONDS = 90
DRY_RUN = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?dryRun=All"
PROBE = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe"},
    "spec": {
        "replicatedJobs": [
            {"name": "probe", "template": {"spec": {"template": {"spec": pod_spec(restartPolicy="Never")}}}},
        ]
    },
}

T = TypeVar("T")


@contextlib.contextmanager
def training_operator(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run the Kubeflow training operator, without its webhook (its certificate names a Service)."""
    manifests = recipe_folder(TRAINING_OPERATOR) / "manifests" / "base"
    for part in ("crds", "webhook"):
        control_plane.kubectl("apply", "--server-side", "-k", manifests / part)
    if not control_plane.api.exists("/api/v1/namespaces/kubeflow"):
        control_plane.kubectl("create", "namespace", "kubeflow")
    if not control_plane.api.exists(SECRET):
        control_plane.kubectl("create", "secret", "generic", "training-operator-webhook-cert", "-n", "kubeflow")
    certificates = _certificate_folder(control_plane, TRAINING_OPERATOR)
    webhook, health = free_ports(2)
    arguments = (
        f"-kubeconfig={control_plane.kubeconfig}",
        "-metrics-bind-address=0",
        f"-health-probe-bind-address=127.0.0.1:{health}",
        f"-webhook-server-port={webhook}",
    )
    with _running(control_plane, TRAINING_OPERATOR, arguments):
        # It puts its certificates into the Secret and waits until they are mounted; there is no kubelet to do that.
        data = _wait(control_plane, TRAINING_OPERATOR, lambda: control_plane.api.get(SECRET)["data"], "its Secret")
        for name, content in data.items():
            (certificates / name).write_bytes(base64.b64decode(content))
        _wait(control_plane, TRAINING_OPERATOR, lambda: _is_ready(health), "ready")
        control_plane.api.delete(VALIDATOR)
        yield


@contextlib.contextmanager
def jobset(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run JobSet with its webhooks, which the API server calls on a loopback port."""
    config = recipe_folder(JOBSET) / "config" / "components"
    control_plane.kubectl("apply", "--server-side", "-f", config / "crd" / "bases")
    certificates = _certificate_folder(control_plane, JOBSET)
    pair = control_plane.authority.issue()
    (certificates / "tls.crt").write_bytes(pair.certificate)
    (certificates / "tls.key").write_bytes(pair.key)
    webhook, health = free_ports(2)
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": webhook},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    settings_file = _folder(control_plane, JOBSET) / "config.yaml"
    settings_file.write_text(json.dumps(settings))
    arguments = (f"-kubeconfig={control_plane.kubeconfig}", f"-config={settings_file}")
    # Before the start, which takes seconds: until then the API server has surely noticed its webhooks.
    configurations = _local_webhooks(control_plane, config / "webhook", port=webhook)
    control_plane.kubectl.apply(configurations)
    try:
        with _running(control_plane, JOBSET, arguments):
            _wait(control_plane, JOBSET, lambda: _is_ready(health), "ready")
            # It serves 404 until its controllers are set up, which /readyz does not wait for.
            _wait(control_plane, JOBSET, lambda: control_plane.api.create(DRY_RUN, PROBE), "its webhooks answer")
            yield
    finally:
        for configuration in configurations:
            control_plane.kubectl("delete", configuration["kind"], configuration["metadata"]["name"])


def _local_webhooks(control_plane: ControlPlane, kustomization: Path, *, port: int) -> list[dict]:
    """The webhook configurations of a kustomization, calling 127.0.0.1 instead of a Service."""
    rendered = yaml.safe_load_all(control_plane.kubectl("kustomize", kustomization))
    configurations = [item for item in rendered if "webhooks" in item]
    bundle = base64.b64encode(control_plane.authority.pem).decode()
    for configuration in configurations:
        configuration["metadata"] = {"name": f"jobset-{configuration['metadata']['name']}"}
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return configurations


@contextlib.contextmanager
def _running(control_plane: ControlPlane, recipe: Recipe, arguments: tuple[str, ...]) -> Iterator[None]:
    folder = _folder(control_plane, recipe)
    command = [binary_path(recipe, recipe.programs[0].binary), *arguments]
    control_plane.processes.start(recipe.name, command, env={"TMPDIR": str(folder)}, cwd=folder)
    try:
        yield
    finally:
        if control_plane.processes.is_running(recipe.name):
            control_plane.processes.stop(recipe.name, timeout=10)


def _folder(control_plane: ControlPlane, recipe: Recipe) -> Path:
    return control_plane.folder / "operators" / recipe.name


def _certificate_folder(control_plane: ControlPlane, recipe: Recipe) -> Path:
    folder = _folder(control_plane, recipe) / "k8s-webhook-server" / "serving-certs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _wait(control_plane: ControlPlane, recipe: Recipe, predicate: Callable[[], T], what: str) -> T:
    def check() -> T:
        control_plane.processes.check_running(recipe.name)
        return predicate()

    return wait_for(
        check,
        what=f"{recipe.name}: {what}",
        timeout=START_SECONDS,
        describe=lambda: control_plane.processes.log(recipe.name),
    )


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()
