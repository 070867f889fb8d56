"""Runs real controllers against the control plane, so that tests meet pods that nobody here wrote.

All but the MPI operator are controller-runtime managers: their serving certificate lies in
$TMPDIR/k8s-webhook-server/serving-certs; each gets a folder of its own as $TMPDIR. Their custom resource definitions
stay installed when they end, except that of the MPI operator: the training operator has another one of the same name.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.control_plane.assets import recipe_folder
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod_spec
from tests.control_plane.processes import free_ports
from tests.control_plane.running import (
    certificate_folder,
    is_ready,
    local_webhooks,
    operator_folder,
    running,
    wait_for_operator,
)
from tests.control_plane.versions import JOBSET, KUBERAY, LWS, MPI_OPERATOR, TRAINER, TRAINING_OPERATOR, Recipe
from tests.control_plane.waiting import wait_for

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SECRET = "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
VALIDATOR = f"{ADMISSION}/validatingwebhookconfigurations/validator.training-operator.kubeflow.org"
MPI_JOBS = "/apis/kubeflow.org/v2beta1/mpijobs"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mpi-operator"
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
LWS_DRY_RUN = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets?dryRun=All"
LWS_PROBE = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "probe"},
    "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": pod_spec()}}},
}


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
    certificates = certificate_folder(control_plane, TRAINING_OPERATOR)
    webhook, health = free_ports(2)
    arguments = (
        f"-kubeconfig={control_plane.kubeconfig}",
        "-metrics-bind-address=0",
        f"-health-probe-bind-address=127.0.0.1:{health}",
        f"-webhook-server-port={webhook}",
    )
    with running(control_plane, TRAINING_OPERATOR, arguments):
        # It puts its certificates into the Secret and waits until they are mounted; there is no kubelet to do that.
        data = wait_for_operator(
            control_plane, TRAINING_OPERATOR, lambda: control_plane.api.get(SECRET)["data"], "its Secret"
        )
        for name, content in data.items():
            (certificates / name).write_bytes(base64.b64decode(content))
        wait_for_operator(control_plane, TRAINING_OPERATOR, lambda: is_ready(health), "ready")
        control_plane.api.delete(VALIDATOR)
        yield


@contextlib.contextmanager
def jobset(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run JobSet with its webhooks, which the API server calls on a loopback port."""
    config = recipe_folder(JOBSET) / "config" / "components"
    control_plane.kubectl("apply", "--server-side", "-f", config / "crd" / "bases")
    api = "config.jobset.x-k8s.io/v1alpha1"
    with _with_webhooks(control_plane, JOBSET, config / "webhook", api=api, certificates_by="internalCertManagement"):
        # It serves 404 until its controllers are set up, which /readyz does not wait for.
        wait_for_operator(
            control_plane, JOBSET, lambda: control_plane.api.create(DRY_RUN, PROBE), "its webhooks answer"
        )
        yield


@contextlib.contextmanager
def lws(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run LeaderWorkerSet with its webhooks, which label its pods."""
    config = recipe_folder(LWS) / "config"
    control_plane.kubectl("apply", "--server-side", "-f", config / "crd" / "bases")
    api = "config.lws.x-k8s.io/v1alpha1"
    with _with_webhooks(control_plane, LWS, config / "webhook", api=api, certificates_by="internalCertManagement"):
        # Like JobSet's, they come up after /readyz.
        wait_for_operator(
            control_plane, LWS, lambda: control_plane.api.create(LWS_DRY_RUN, LWS_PROBE), "its webhooks answer"
        )
        yield


@contextlib.contextmanager
def trainer(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run the Kubeflow trainer with its webhooks and its runtime for PyTorch; it needs JobSet to run."""
    manifests = recipe_folder(TRAINER) / "manifests" / "base"
    control_plane.kubectl("apply", "--server-side", "-k", manifests / "crds")
    api = "config.trainer.kubeflow.org/v1alpha1"
    with _with_webhooks(control_plane, TRAINER, manifests / "webhook", api=api, certificates_by="certManagement"):
        runtime = manifests / "runtimes" / "torch_distributed.yaml"
        wait_for_operator(
            control_plane, TRAINER, lambda: control_plane.kubectl("apply", "-f", runtime), "its webhooks answer"
        )
        try:
            yield
        finally:
            control_plane.kubectl("delete", "-f", runtime, "--wait=false")


@contextlib.contextmanager
def _with_webhooks(
    control_plane: ControlPlane, recipe: Recipe, kustomization: Path, *, api: str, certificates_by: str
) -> Iterator[None]:
    """Run an operator of the JobSet family, configured by a file, and the API server calls its webhooks.

    `certificates_by` is the section of that file in which an operator is told that others look after certificates.
    """
    certificates = certificate_folder(control_plane, recipe)
    pair = control_plane.authority.issue()
    (certificates / "tls.crt").write_bytes(pair.certificate)
    (certificates / "tls.key").write_bytes(pair.key)
    webhook, health = free_ports(2)
    settings: dict[str, Any] = {
        "apiVersion": api,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": webhook},
        "leaderElection": {"leaderElect": False},
        certificates_by: {"enable": False},
    }
    if recipe is LWS:
        settings["webhook"]["certDir"] = str(certificates)  # its default is one folder for all of a machine
    settings_file = operator_folder(control_plane, recipe) / "config.yaml"
    settings_file.write_text(json.dumps(settings))
    arguments = (f"-kubeconfig={control_plane.kubeconfig}", f"-config={settings_file}")
    # Before the start, which takes seconds: until then the API server has surely noticed its webhooks.
    configurations = local_webhooks(control_plane, recipe, kustomization, port=webhook)
    control_plane.kubectl.apply(configurations)
    try:
        with running(control_plane, recipe, arguments):
            wait_for_operator(control_plane, recipe, lambda: is_ready(health), "ready")
            yield
    finally:
        for configuration in configurations:
            control_plane.kubectl("delete", configuration["kind"], configuration["metadata"]["name"])


@contextlib.contextmanager
def kuberay(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run KubeRay, which needs no webhook."""
    control_plane.kubectl("apply", "--server-side", "-f", recipe_folder(KUBERAY) / "config" / "crd" / "bases")
    (health,) = free_ports(1)
    arguments = (
        f"-kubeconfig={control_plane.kubeconfig}",
        "-enable-leader-election=false",
        "-metrics-addr=0",
        f"-health-probe-bind-address=127.0.0.1:{health}",
    )
    with running(control_plane, KUBERAY, arguments):
        wait_for_operator(control_plane, KUBERAY, lambda: is_ready(health), "ready")
        yield


@contextlib.contextmanager
def mpi_operator(control_plane: ControlPlane) -> Iterator[None]:
    """Install and run the MPI operator; it takes a lease before it starts, which nobody disputes."""
    definition = recipe_folder(MPI_OPERATOR) / "manifests" / "base" / "kubeflow.org_mpijobs.yaml"
    control_plane.kubectl("delete", "--ignore-not-found", "crd", "mpijobs.kubeflow.org")
    control_plane.kubectl("apply", "--server-side", "-f", definition)
    # It ends where its kind is not served, which may take seconds after a definition of the same name was deleted.
    wait_for(lambda: control_plane.api.list(MPI_JOBS) == [], what=f"{MPI_JOBS} served")
    control_plane.kubectl("delete", "--ignore-not-found", "-n", "default", "lease", "mpi-operator")
    arguments = (f"-kubeConfig={control_plane.kubeconfig}", "-lock-namespace=default", "-kube-api-qps=100")
    try:
        with running(control_plane, MPI_OPERATOR, arguments):
            wait_for_operator(
                control_plane,
                MPI_OPERATOR,
                lambda: control_plane.api.get(LEASE)["spec"].get("holderIdentity"),
                "holds its lease",
            )
            yield
    finally:
        control_plane.kubectl("delete", "crd", "mpijobs.kubeflow.org")
