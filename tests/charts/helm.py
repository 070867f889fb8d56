"""The real helm, and the chart as it renders."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.build import binary_path
from tests.control_plane.versions import HELM

CHART = Path(__file__).parents[2] / "charts" / "fairgate"
CI_VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
POLICIES = [CHART / "files" / "default-policy.yaml", *sorted((CHART.parents[1] / "policies").glob("*/*.yaml"))]
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
REGISTRATION = (*WEBHOOKS, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
NAMESPACE = "fairgate-system"
RELEASE = "fairgate"
KUBE_VERSION = "1.37.0"
WITH_UNINSTALL = ("--api-versions", "fairgate.dev/uninstall")
"""`helm template` renders what runs before `helm uninstall` only with this."""
TIMEOUT_SECONDS = 180

Manifest = dict[str, Any]


class HelmError(AssertionError):
    """helm ended with an error; the text is what the user would read."""


def helm(*arguments: str | Path, kubeconfig: Path | None = None, home: Path | None = None) -> str:
    """Run helm and return its output; `home` is where it keeps its caches."""
    found = binary_path(HELM, "helm")
    access = ("--kubeconfig", kubeconfig) if kubeconfig else ()
    environment = {"HOME": str(home or "/nonexistent"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [found, *arguments, *access],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=environment,
        cwd=CHART.parents[1],
    )
    if done.returncode != 0:
        raise HelmError(
            f"helm {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}{done.stdout}"
        )
    return done.stdout


def render(*flags: str | Path, with_hooks: bool = False) -> list[Manifest]:
    """What the chart renders without a cluster, in helm's order; hooks are left out unless requested."""
    command = ("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", KUBE_VERSION)
    command += () if with_hooks else ("--no-hooks",)
    return [found for found in yaml.safe_load_all(helm(*command, *flags)) if found]


def kinds(manifests: Iterable[Manifest], *wanted: str) -> list[Manifest]:
    """The objects of some kinds."""
    return [found for found in manifests if found["kind"] in wanted]
