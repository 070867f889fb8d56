"""Builders of Kubernetes objects for tests: pure, with realistic defaults, so that a test states only what matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

GPU = "nvidia.com/gpu"


def node(
    name: str,
    *,
    gpus: int = 10,
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    resources: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node with this much to allocate; `resources` adds extended resources such as MIG slices."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": str(pods), **(resources or {})}
    if gpus:
        allocatable[GPU] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def pod_spec(*, gpus: int = 0, cpu: str = "1", memory: str = "8Gi", **spec: Any) -> dict[str, Any]:
    """A pod's spec with one container; other fields of the spec are given by name, as in `nodeSelector={…}`."""
    requests = {"cpu": cpu, "memory": memory} | ({GPU: str(gpus)} if gpus else {})
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "example.invalid/train:1",
        "resources": {"requests": requests, "limits": limits},
    }
    return {"containers": [container], **spec}


def pod(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str | None = None,
    owners: Iterable[Mapping[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A pod; `gpus`, `cpu`, `memory` and fields of the spec as in `pod_spec`."""
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    if namespace:
        metadata["namespace"] = namespace
    if owners:
        metadata["ownerReferences"] = [dict(each) for each in owners]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(**spec)}


def definition(group: str, version: str, *, kind: str) -> dict[str, Any]:
    """The definition of a namespaced kind of which any object is valid."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def job(
    name: str,
    *,
    pods: int = 1,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Job of `pods` pods at a time; labels and annotations are those of its pods, the rest as in `pod_spec`."""
    template = {
        "metadata": {"labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": pod_spec(restartPolicy="Never", **spec),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }
