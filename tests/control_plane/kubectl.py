"""The real kubectl, as a person or a script would use it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120


class KubectlError(AssertionError):
    """kubectl ended with an error; `stderr` is what the user would read."""

    def __init__(self, command: str, *, code: int, stdout: str, stderr: str):
        super().__init__(f"{command} ended with {code}:\n{stderr}{stdout}")
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


class Kubectl:
    """kubectl with one kubeconfig."""

    def __init__(self, binary: Path, *, kubeconfig: Path, environment: Mapping[str, str]):
        self._binary = binary
        self._kubeconfig = kubeconfig
        self._environment = dict(environment)

    def __call__(self, *arguments: str | Path, stdin: str | None = None, check: bool = True) -> str:
        """Run `kubectl <arguments>` and return its output; an error is a KubectlError, unless `check` is False."""
        done = self.run(*arguments, stdin=stdin)
        if check and done.returncode != 0:
            command = " ".join(["kubectl", *map(str, arguments)])
            raise KubectlError(command, code=done.returncode, stdout=done.stdout, stderr=done.stderr)
        return done.stdout

    def run(self, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return everything: exit code, stdout, stderr."""
        return subprocess.run(
            [self._binary, "--kubeconfig", self._kubeconfig, *arguments],
            input=stdin if stdin is not None else "",
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def plugin(self, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run `kubectl <plugin> …` with plugins from a folder; kubectl takes no flag of its own before a plugin."""
        path = f"{folder}:{self._environment.get('PATH', '')}"
        return subprocess.run(
            [self._binary, *arguments],
            env={**self._environment, "PATH": path, "KUBECONFIG": str(self._kubeconfig)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def json(self, *arguments: str | Path) -> Any:
        """Run kubectl with `-o json` and decode its output; for a list of objects take ["items"]."""
        return json.loads(self(*arguments, "-o", "json"))

    def apply(self, objects: Mapping[str, Any] | Iterable[Mapping[str, Any]], *options: str) -> str:
        """`kubectl apply` one object or several."""
        return self("apply", *options, "-f", "-", stdin=manifest(objects))

    def with_kubeconfig(self, kubeconfig: Path) -> Kubectl:
        """The same kubectl as another user."""
        return Kubectl(self._binary, kubeconfig=kubeconfig, environment=self._environment)


def manifest(objects: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str:
    """One object or several as the text of a manifest, for `-f -`."""
    items = [objects] if isinstance(objects, Mapping) else list(objects)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
