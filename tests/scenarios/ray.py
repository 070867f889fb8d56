"""RayClusters without their operator: objects that declare gangs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import definition
from tests.control_plane.workbench import wait_for

RAY = "ray.io/cluster"
"""The label of a RayCluster's pods."""
_API = "ray.io/v1"


@contextmanager
def ray_clusters(cluster: ControlPlane) -> Iterator[None]:
    """Define the kind until the end of the block."""
    made = definition("ray.io", "v1", kind="RayCluster")
    cluster.kubectl.apply([made])
    try:
        yield
    finally:
        cluster.kubectl("delete", "crd", made["metadata"]["name"])


def ray_cluster(cluster: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    """Create one and return the owner reference of its pods."""
    body = {"apiVersion": _API, "kind": "RayCluster", "metadata": {"name": name}}

    def create() -> dict[str, Any] | None:
        try:
            return cluster.api.create(f"/apis/{_API}/namespaces/{namespace}/rayclusters", body)
        except ApiError:
            return None  # the kind is not served yet

    made = wait_for(cluster, create, what="the RayCluster")
    return {"apiVersion": _API, "kind": "RayCluster", "name": name, "uid": made["metadata"]["uid"], "controller": True}
