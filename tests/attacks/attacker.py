"""The attacker of these tests: a namespace admin with ClusterRole `admin` in one namespace, and no other right."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.workbench import wait_for


@dataclass(frozen=True, slots=True)
class Attacker:
    """Acts on a control plane by impersonation: `kubectl` for what people type, `api` for the rest."""

    cluster: ControlPlane
    namespace: str
    user: str
    api: Api

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl in the namespace and return everything: exit code, stdout, stderr."""
        return self.cluster.kubectl.run("--as", self.user, "-n", self.namespace, *arguments, stdin=stdin)

    def create(self, manifest: Mapping[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
        """`kubectl create -f -` one object."""
        return self.kubectl("create", *options, "-f", "-", stdin=json.dumps(manifest))

    def refused(self, manifest: Mapping[str, Any], *options: str, code: str) -> str:
        """Create one object, which must fail with this reason code; returns the message."""
        done = self.create(manifest, *options)
        assert done.returncode != 0, done.stdout
        assert f"({code})" in done.stderr, done.stderr
        return done.stderr

    def create_pod(self, pod: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Create a pod through the API; an ApiError carries the refusal. `dryRun="All"` stores nothing."""
        return self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", dict(pod), **query)


def make_attacker(cluster: ControlPlane, namespace: str, user: str = "mallory") -> Attacker:
    """Make a user admin of a namespace, and wait until the API server knows it."""
    cluster.kubectl("create", "rolebinding", f"admin-{user}", "--clusterrole=admin", f"--user={user}", "-n", namespace)
    attacker = Attacker(cluster, namespace, user, cluster.acting_as(user))

    def may_create_pods() -> bool:
        try:
            attacker.api.list(f"/api/v1/namespaces/{namespace}/pods")
        except ApiError:
            return False
        return True

    wait_for(cluster, may_create_pods, what=f"{user} is admin of {namespace}")
    return attacker
