"""A NodePool of Karpenter on the test control plane, and what it did: KWOK plays the nodes of 8 GPUs that it brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import list_pods, make_nodes, wait_for

NODE_POOL = "karpenter.sh/nodepool"
NODE_POOLS, NODE_CLAIMS = (f"/apis/karpenter.sh/v1/{plural}" for plural in ("nodepools", "nodeclaims"))
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
GPUS = 8
"""GPUs of a node: tests/control_plane/karpenter-instances.json."""


@contextmanager
def node_pool(cluster: ControlPlane, *, most_gpus: int = 64, consolidates: bool = True) -> Iterator[None]:
    """Have a NodePool whose nodes have the label pool=cloud, and a node without GPUs; at the end its nodes are gone."""
    node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "cloud"}}
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "cloud"}
    requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["gpu-8"]}]
    spec = {"nodeClassRef": reference, "requirements": requirements, "expireAfter": "Never"}
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "1s" if consolidates else "Never",
        "budgets": [{"nodes": "100%"}],
    }
    made = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "cloud"},
        "spec": {
            "template": {"metadata": {"labels": {"pool": "cloud"}}, "spec": spec},
            "limits": {"nvidia.com/gpu": str(most_gpus)},
            "disruption": disruption,
        },
    }
    make_nodes(cluster, 1, gpus=0, prefix="static")
    cluster.api.create(CLASSES, node_class)
    cluster.api.create(NODE_POOLS, made)
    try:
        yield
    finally:
        cluster.api.delete(f"{NODE_POOLS}/cloud")
        for claim in cluster.api.list(NODE_CLAIMS):
            cluster.api.delete(f"{NODE_CLAIMS}/{claim['metadata']['name']}")
        wait_for(cluster, lambda: not cluster.api.list(NODE_CLAIMS) and not nodes(cluster), what="its nodes are gone")
        cluster.api.delete(f"{CLASSES}/cloud")


def nodes(cluster: ControlPlane) -> list[str]:
    """The nodes of Karpenter."""
    return sorted(
        each["metadata"]["name"]
        for each in cluster.api.list("/api/v1/nodes")
        if NODE_POOL in each["metadata"].get("labels", {})
    )


def set_replicas(cluster: ControlPlane, namespace: str, replicas: int, *, gpus: int = 2, **spec: Any) -> None:
    """Have a ReplicaSet of so many pods for the pool; it replaces those that Karpenter evicts."""
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    labels = {"app": "web"}
    chosen = {**labels, **spec.pop("labels", {})}
    template = pod("web", gpus=gpus, labels=chosen, nodeSelector={"pool": "cloud"}, **spec)
    made = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }
    if cluster.api.exists(f"{path}/web"):
        cluster.api.patch(f"{path}/web", {"spec": {"replicas": replicas}})
    else:
        cluster.api.create(path, made)


def wait_running(cluster: ControlPlane, namespace: str, number: int, *, timeout: float = 90) -> float:
    """Wait until so many pods of a namespace run and there is no other; returns the seconds until then."""
    began = time.monotonic()

    def all_run() -> bool:
        found = [each for each in list_pods(cluster, namespace) if "deletionTimestamp" not in each["metadata"]]
        return len(found) == number and all(each["status"].get("phase") == "Running" for each in found)

    wait_for(cluster, all_run, what=f"{number} pods run", timeout=timeout)
    return time.monotonic() - began


def wait_nodes(cluster: ControlPlane, number: int, *, timeout: float = 150) -> float:
    """Wait until Karpenter has so many nodes; returns the seconds until then."""
    began = time.monotonic()
    wait_for(cluster, lambda: len(nodes(cluster)) == number, what=f"{number} nodes of Karpenter", timeout=timeout)
    return time.monotonic() - began


def without_scheduler(cluster: ControlPlane, act: Callable[[], None]) -> None:
    """Act while kube-scheduler does not run: what is created then is not bound."""
    cluster.stop("kube-scheduler")
    try:
        act()
    finally:
        cluster.start("kube-scheduler")
