"""The guards of a policy on a control plane, with nothing else of Fairgate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import HELD_NODES, Snapshot
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import make_namespace, wait_for
from tests.scenarios.serving import manifests, wait_guarded

FORGED = {
    "HeldRoom": ("pods", pod("none", tolerations=[{"key": "fairgate.dev/held", "operator": "Exists"}])),
    "TenancyChanged": (
        "namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "none", "labels": {"fairgate.dev/exempt": ""}}},
    ),
    "UncountedDevice": ("pods", pod("none", hostPID=True)),
    "envFrom": (
        "configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none"}, "data": {"CUDA_VERSION": "1"}},
    ),
    ". and ..": (
        "persistentvolumes",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "none"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/dev/nvidia0"},
            },
        },
    ),
}
"""What each guard but that of labels refuses, by text of its message: they come into force one by one."""


@contextmanager
def guarded_by(control_plane: ControlPlane, policy: str, folder: Path) -> Iterator[None]:
    """Have a control plane with the guards of a policy and nothing else of Fairgate, until the end of the block."""
    (folder / "policy.yaml").write_text(policy)
    control_plane.vacate()
    before = Snapshot.take(control_plane)
    apply_guards(control_plane, folder)
    yield
    before.restore(control_plane)


def apply_guards(cluster: ControlPlane, folder: Path) -> None:
    """Apply the guards for the policy in a folder, and wait until all of them are in force."""
    printed = yaml.safe_load_all(manifests(policy=folder, url="https://127.0.0.1:1"))
    kinds = ("CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    cluster.kubectl.apply([made for made in printed if made["kind"] in kinds])
    wait_for(cluster, lambda: cluster.api.exists(HELD_NODES), what="HeldNodes are defined")
    namespace = make_namespace(cluster)
    user = f"plain-{namespace}"
    cluster.kubectl(
        "create", "clusterrole", user, "--verb=create", f"--resource={','.join({k for k, _ in FORGED.values()})}"
    )
    cluster.kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")
    api = cluster.acting_as(user)

    def refused(words: str, plural: str, made: dict) -> bool:
        scope = "" if plural in ("namespaces", "persistentvolumes") else f"/namespaces/{namespace}"
        try:
            api.create(f"/api/v1{scope}/{plural}", made, dryRun="All")
        except ApiError as error:
            return words in error.message
        return False

    wait_guarded(cluster)
    wait_for(cluster, lambda: all(refused(words, *made) for words, made in FORGED.items()), what="the guards")
