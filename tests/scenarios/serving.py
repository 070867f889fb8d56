"""What every harness of `fairgate serve` does on a control plane: policy, registration, endpoints, metrics."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import wait_for

ROOT = Path(__file__).parents[2]
FAIRGATE = (sys.executable, "-m", "webhook")
TIER = "fairgate.dev/tier"


def write_policy(folder: Path, teams: Sequence[Mapping[str, object]], *, more: str = "") -> None:
    """Write a policy of these teams into a new folder; `more` adds sections as YAML."""
    folder.mkdir(parents=True)
    head = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
    (folder / "teams.yaml").write_text(f"{head}teams: {json.dumps(teams)}\n{more}")


def manifests(*, policy: Path, url: str, ca: Path | None = None) -> str:
    """What `fairgate manifests` prints; without a CA the caBundle is left to who fills it in."""
    trust = () if ca is None else ("--ca", ca)
    command = [*FAIRGATE, "manifests", "--policy", policy, "--url", url, *trust]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def register(cluster: ControlPlane, printed: str, *, namespace: str) -> None:
    """Apply manifests and wait until the API server asks about the pods of a namespace."""
    cluster.kubectl("apply", "-f", "-", stdin=printed)
    wait_for(cluster, lambda: is_asked(cluster, namespace), what="the API server asks Fairgate")
    wait_guarded(cluster)


def wait_guarded(cluster: ControlPlane) -> None:
    """Wait until the guard of labels is in force: nobody binds a pod that is not there, and it speaks first."""

    def is_guarded() -> bool:
        binding = {"metadata": {"name": "none", "labels": {TIER: "guaranteed"}}, "target": {"name": "none"}}
        try:
            cluster.api.create("/api/v1/namespaces/default/pods/none/binding", binding, dryRun="All")
        except ApiError as error:
            return error.status == HTTPStatus.FORBIDDEN
        return False

    wait_for(cluster, is_guarded, what="the API server guards labels")


def is_asked(cluster: ControlPlane, namespace: str) -> bool:
    """Tell whether the webhooks are in force: a dry run comes back labelled."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    created = cluster.api.create(pods, pod("probe", gpus=1), dryRun="All")
    return TIER in created["metadata"].get("labels", {})


def leaked(text: str, *, keys: Iterable[bytes], kubeconfig: Path) -> list[str]:
    """What of these private keys (PEM) and of the kubeconfig's credentials stands in a text."""
    secrets = [line for key in keys for line in key.decode().splitlines() if line and not line.startswith("-----")]
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    secrets += [value for value in user.values() if isinstance(value, str)]
    assert len(secrets) > 1
    return [secret for secret in secrets if secret in text]


def get(url: str, *, ca: Path) -> str:
    """GET one of a server's endpoints."""
    context = ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(url, context=context, timeout=10) as answer:
        return answer.read().decode()


def total(metrics: str, name: str, **labels: str) -> float:
    """The sum of a metric's series that carry these labels."""
    samples = (sample for family in text_string_to_metric_families(metrics) for sample in family.samples)
    return sum(found.value for found in samples if found.name == name and labels.items() <= found.labels.items())
