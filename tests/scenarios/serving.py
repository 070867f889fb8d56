"""What every harness of `fairgate serve` does on a control plane: policy, registration, endpoints, metrics."""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import wait_for
from webhook.cli.main import main
from webhook.policy.watch import load

ROOT = Path(__file__).parents[2]
FAIRGATE = (sys.executable, "-m", "webhook")
TIER = "fairgate.dev/tier"


def policy_of(teams: Sequence[Mapping[str, object]], *, more: str = "") -> str:
    """A policy file of these teams; `more` adds sections as YAML."""
    return f"apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams: {json.dumps(teams)}\n{more}"


def write_policy(folder: Path, content: str) -> None:
    """Make a folder hold this policy and nothing else; an unchanged file is not rewritten."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "teams.yaml"
    for other in set(folder.iterdir()) - {file}:
        other.unlink()
    if not file.exists() or file.read_text() != content:
        file.write_text(content)


def wait_policy(cluster: ControlPlane, folder: Path, readyz: Callable[[], str]) -> None:
    """Wait until the policy of a folder is in force, by a server's readiness."""
    wanted = f"policy {load(folder).hash}"
    wait_for(cluster, lambda: wanted in readyz() and "broken edit" not in readyz(), what=f"{wanted} in force")


def manifests(*, policy: Path, url: str, ca: Path | None = None) -> str:
    """The output of `fairgate manifests`; without a CA the caBundle is left out."""
    trust = () if ca is None else ("--ca", str(ca))
    command = ["manifests", "--policy", str(policy), "--url", url, *trust]
    return CliRunner().invoke(main, command, catch_exceptions=False).stdout


def admission_path(made: Mapping[str, Any]) -> str | None:
    """The API path of a webhook configuration, a guard, its binding or a role; None for an object of another kind."""
    if made["kind"] == "ClusterRole":
        return f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{made['metadata']['name']}"
    if not made["apiVersion"].startswith("admissionregistration.k8s.io/"):
        return None
    plural = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}.get(made["kind"], f"{made['kind'].lower()}s")
    return f"{ADMISSION}/{plural}/{made['metadata']['name']}"


def register(cluster: ControlPlane, printed: str, *, namespace: str) -> None:
    """Apply manifests and wait until the API server calls the webhooks for a namespace."""
    cluster.kubectl("apply", "-f", "-", stdin=printed)
    wait_for(cluster, lambda: is_asked(cluster, namespace), what="the API server calls Fairgate")
    wait_guarded(cluster)


def wait_guarded(cluster: ControlPlane) -> None:
    """Wait until the guard of labels is in force: it refuses a binding of a pod that does not exist before the 404."""

    def is_guarded() -> bool:
        binding = {"metadata": {"name": "none", "labels": {TIER: "guaranteed"}}, "target": {"name": "none"}}
        try:
            cluster.api.create("/api/v1/namespaces/default/pods/none/binding", binding, dryRun="All")
        except ApiError as error:
            return error.status == HTTPStatus.FORBIDDEN
        return False

    wait_for(cluster, is_guarded, what="the API server guards labels")


def is_asked(cluster: ControlPlane, namespace: str) -> bool:
    """Whether the webhooks are in force: a dry run is labeled."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    created = cluster.api.create(pods, pod("probe", gpus=1), dryRun="All")
    return TIER in created["metadata"].get("labels", {})


def is_called(cluster: ControlPlane) -> bool:
    """Whether the API server still calls a webhook that was deleted: no team has the namespace `default`."""
    try:
        cluster.api.create("/api/v1/namespaces/default/pods", pod("probe", gpus=1), dryRun="All")
    except ApiError:
        return True
    return False


def leaked(text: str, *, keys: Iterable[bytes], kubeconfig: Path) -> list[str]:
    """Return which of these private keys (PEM) and kubeconfig credentials a text contains."""
    secrets = [line for key in keys for line in key.decode().splitlines() if line and not line.startswith("-----")]
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    secrets += [value for value in user.values() if isinstance(value, str)]
    assert len(secrets) > 1
    return [secret for secret in secrets if secret in text]


def get(url: str, *, ca: Path) -> str:
    """GET one of a server's endpoints."""
    context = ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(url, context=context, timeout=60) as answer:
        return answer.read().decode()


def total(metrics: str, name: str, /, **labels: str) -> float:
    """The sum of a metric's series that carry these labels."""
    samples = (sample for family in text_string_to_metric_families(metrics) for sample in family.samples)
    return sum(found.value for found in samples if found.name == name and labels.items() <= found.labels.items())
