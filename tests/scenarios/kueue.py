"""Kueue's own objects: a queue for a namespace, with what it may admit; and what becomes of pods that it admits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU
from tests.control_plane.workbench import list_pods, wait_for
from tests.scenarios.standing_fairgate import FairgateServer

API = "kueue.x-k8s.io/v1beta2"
QUEUE = "gpus"
QUEUED = {"kueue.x-k8s.io/queue-name": QUEUE}
"""The label by which a pod or a workload waits for Kueue."""
PLENTY = {"cpu": "1000000", "memory": "1000000Gi"}
"""Quota for what pods request besides GPUs: Kueue admits nothing whose resources a queue does not list."""


@contextmanager
def queue(
    cluster: ControlPlane,
    namespace: str,
    *,
    gpus: int,
    flavor: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Iterator[None]:
    """Let Kueue admit so many GPUs of a namespace until the end of the block; `flavor` says on which nodes."""
    quotas = [{"name": name, "nominalQuota": quota} for name, quota in (PLENTY | {GPU: str(gpus)}).items()]
    group = {
        "coveredResources": [each["name"] for each in quotas],
        "flavors": [{"name": namespace, "resources": quotas}],
    }
    objects = [
        _made("ResourceFlavor", namespace, dict(flavor or {})),
        _made("ClusterQueue", namespace, {"namespaceSelector": {}, "resourceGroups": [group], **spec}),
        _made("LocalQueue", QUEUE, {"clusterQueue": namespace}),
    ]
    objects[-1]["metadata"]["namespace"] = namespace
    cluster.kubectl.apply(objects)
    path = f"/apis/{API}/namespaces/{namespace}/localqueues/{QUEUE}"
    wait_for(cluster, lambda: _is_active(cluster.api.get(path)), what="the queue is active")
    try:
        yield
    finally:
        for made in objects[:2]:
            cluster.kubectl("delete", f"{made['kind']}.kueue.x-k8s.io", namespace, "--wait=false")


def _made(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _is_active(found: Mapping[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


def bound_pods(cluster: ControlPlane, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until a namespace has exactly so many pods, all of them on nodes; returns the pods."""

    def all_bound() -> list[dict[str, Any]]:
        found = [each for each in list_pods(cluster, namespace) if "deletionTimestamp" not in each["metadata"]]
        assert len(found) == count, len(found)
        assert all(each["spec"].get("nodeName") for each in found)
        return found

    return wait_for(cluster, all_bound, what=f"{count} pods of {namespace} on nodes", timeout=90)


def wait_charged(fairgate: FairgateServer, gpus: float) -> None:
    """Wait until team a is charged exactly so many GPUs."""
    wait_for(fairgate.cluster, lambda: fairgate.charged("a") == gpus, what=f"{gpus} GPUs charged")
