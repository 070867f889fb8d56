"""What kubelet does for the chart's pods, with processes in place of containers.

Arguments and environment are those of the Deployment. Rewritten is only what a container has of its own: mount paths
lead to folders that hold the same ConfigMap or Secret, `--listen` to a free loopback port, and a kubeconfig with a
token of the pod's ServiceAccount takes the place of the files that kubelet mounts.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import wait_for
from tests.scenarios.serving import FAIRGATE, ROOT

Json = dict[str, Any]

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""What the API server adds to each pod with a token; here that is in a kubeconfig."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs as a process, on a loopback port; `token` is the one it shows to the API server."""

    name: str
    process: str
    port: int
    token: str


class Kubelet:
    """Starts and stops the containers of one namespace's pods, and keeps their mounts."""

    def __init__(self, cluster: ControlPlane, namespace: str, *, command: Sequence[str | Path] = FAIRGATE) -> None:
        self._cluster = cluster
        self._command = command
        self._namespace = namespace
        self._folder = cluster.folder / f"kubelet-{secrets.token_hex(3)}"
        self._mounted: set[tuple[str, str]] = set()
        self._started = 0

    def start(self, pod: Json, container: Json) -> Container:
        """Start a container of a pod template."""
        self._started += 1
        [port] = free_ports(1)
        token = self._cluster.service_account_token(self._namespace, pod["serviceAccountName"])
        folders = self._mounts(pod, container)
        arguments = [_rewritten(argument, port=port, folders=folders) for argument in container["args"]]
        started = Container(container["name"], f"{container['name']}-{self._folder.name}-{self._started}", port, token)
        kubeconfig = self._cluster.token_kubeconfig(token, namespace=self._namespace)
        environment = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        command = [*self._command, *arguments, f"--kubeconfig={kubeconfig}"]
        self._cluster.processes.start(started.process, command, env=environment, cwd=ROOT)
        return started

    def run(self, pod: Json, container: Json) -> tuple[subprocess.CompletedProcess[str], str]:
        """Run a container to completion; returns that and its token, none where the pod mounts none."""
        folders = self._mounts(pod, container)
        arguments = [str(folders.get(argument, argument)) for argument in container["args"]]
        token = ""
        if pod.get("automountServiceAccountToken", True):
            token = self._cluster.service_account_token(self._namespace, pod["serviceAccountName"])
            arguments.append(f"--kubeconfig={self._cluster.token_kubeconfig(token, namespace=self._namespace)}")
        command = [*self._command, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        return done, token

    def stop(self, container: Container) -> None:
        """Stop a container as kubelet does, by SIGTERM."""
        self._cluster.processes.end(container.process, timeout=20)

    def sync(self) -> None:
        """Update mounted objects; a real kubelet takes up to about a minute."""
        for plural, name in self._mounted:
            if self._cluster.api.exists(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}"):  # hooks' are gone
                self._write(plural, name)

    def _mounts(self, pod: Json, container: Json) -> dict[str, Path]:
        """The folders that a container finds at its mount paths; one of a claim is its own."""
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        mounts = [each for each in container.get("volumeMounts", ()) if each["mountPath"] != _ACCOUNT]
        return {mount["mountPath"]: self._mount(volumes.get(mount["name"])) for mount in mounts}

    def _mount(self, volume: Json | None) -> Path:
        if volume is None:
            folder = self._folder / "claims" / str(self._started)
            folder.mkdir(parents=True)
            return folder
        plural, name = (
            ("secrets", volume["secret"]["secretName"])
            if "secret" in volume
            else ("configmaps", volume["configMap"]["name"])
        )
        self._mounted.add((plural, name))
        return wait_for(self._cluster, lambda: self._write(plural, name), what=f"{plural} {name}, which is mounted")

    def _write(self, plural: str, name: str) -> Path:
        """Write the files of an object, and swap them in all at once, through the link that kubelet makes, too."""
        found = self._cluster.api.get(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}").get("data", {})
        files = {file: base64.b64decode(text) if plural == "secrets" else text.encode() for file, text in found.items()}
        folder = self._folder / plural / name
        version = folder / f"..{secrets.token_hex(4)}"
        version.mkdir(parents=True)
        for file, content in files.items():
            (version / file).write_bytes(content)
        (folder / "..next").symlink_to(version.name)
        os.replace(folder / "..next", folder / "..data")
        for file in files:
            if not (folder / file).is_symlink():
                (folder / file).symlink_to(f"..data/{file}")
        for entry in folder.iterdir():
            if not entry.name.startswith("..") and entry.name not in files:
                entry.unlink()
        return folder


def _rewritten(argument: str, *, port: int, folders: Mapping[str, Path]) -> str:
    flag, _, value = argument.partition("=")
    if flag == "--listen":
        return f"{flag}=127.0.0.1:{port}"
    parent, _, name = value.rpartition("/")
    if parent in folders:
        return f"{flag}={folders[parent] / name}"
    return f"{flag}={folders[value]}" if value in folders else argument
