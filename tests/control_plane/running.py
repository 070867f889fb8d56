"""What running a controller against the control plane takes, whichever it is; operators.py says which there are."""

from __future__ import annotations

import base64
import contextlib
import http.client
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import yaml

from tests.control_plane.build import binary_path
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import Recipe
from tests.control_plane.waiting import wait_for

START_SECONDS = 90

T = TypeVar("T")


def local_webhooks(control_plane: ControlPlane, recipe: Recipe, kustomization: Path, *, port: int) -> list[dict]:
    """The webhook configurations of a kustomization, calling 127.0.0.1 instead of a Service."""
    rendered = yaml.safe_load_all(control_plane.kubectl("kustomize", kustomization))
    configurations = [item for item in rendered if "webhooks" in item]
    bundle = base64.b64encode(control_plane.authority.pem).decode()
    for configuration in configurations:
        configuration["metadata"] = {"name": f"{recipe.name}-{configuration['metadata']['name']}"}
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return configurations


@contextlib.contextmanager
def running(control_plane: ControlPlane, recipe: Recipe, arguments: tuple[str, ...]) -> Iterator[None]:
    """Run an operator under the control plane's supervisor, until the end of the block."""
    folder = operator_folder(control_plane, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    command = [binary_path(recipe, recipe.programs[0].binary), *arguments]
    control_plane.processes.start(recipe.name, command, env={"TMPDIR": str(folder)}, cwd=folder)
    try:
        yield
    finally:
        if control_plane.processes.is_running(recipe.name):
            control_plane.processes.stop(recipe.name, timeout=10)


def operator_folder(control_plane: ControlPlane, recipe: Recipe) -> Path:
    """The folder that an operator runs in; its $TMPDIR, too."""
    return control_plane.folder / "operators" / recipe.name


def certificate_folder(control_plane: ControlPlane, recipe: Recipe) -> Path:
    """The folder in which controller-runtime looks for a serving certificate."""
    folder = operator_folder(control_plane, recipe) / "k8s-webhook-server" / "serving-certs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wait_for_operator(control_plane: ControlPlane, recipe: Recipe, predicate: Callable[[], T], what: str) -> T:
    """Wait for something, and fail at once when the operator has ended."""

    def check() -> T:
        control_plane.processes.check_running(recipe.name)
        return predicate()

    return wait_for(
        check,
        what=f"{recipe.name}: {what}",
        timeout=START_SECONDS,
        describe=lambda: control_plane.processes.log(recipe.name),
    )


def is_ready(port: int) -> bool:
    """Say whether a controller-runtime manager answers its readiness probe."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()
