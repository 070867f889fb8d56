"""Nodes, pods and reviews of Kubernetes 1.37 as plain dicts."""

import json
from typing import Any

GPU = "nvidia.com/gpu"
TEAM, TIER = "fairgate.dev/team", "fairgate.dev/tier"
DECISION = "fairgate.dev/decision"
Json = dict[str, Any]


def node(name: str, **status: Any) -> Json:
    """A node of ten GPUs, 64 CPUs and 512Gi."""
    amounts = {"cpu": "64", "ephemeral-storage": "100Gi", "memory": "512Gi", GPU: "10", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "name": name,
            "resourceVersion": "12",
            "uid": f"node-uid-{name}",
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "addresses": [{"address": "10.0.0.1", "type": "InternalIP"}],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"status": "True", "type": "Ready", "reason": "KubeletReady"}],
        }
        | status,
    }


FOUR_NODES = [node(f"node-{i}") for i in range(4)]


def pod(name: str, namespace: str, *, gpus: object = 1, cpu: str = "6", memory: str = "48Gi", **spec: Any) -> Json:
    """A pod as the API server sends it to webhooks: with defaults, and one container that requests GPUs."""
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    if gpus is not None:
        amount = {GPU: gpus if not isinstance(gpus, int) else str(gpus)}
        resources = {"requests": resources["requests"] | amount, "limits": dict(amount)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": None},
        "spec": {
            "containers": [
                {
                    "name": "train",
                    "image": "registry.test/train:1",
                    "resources": resources,
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
        }
        | spec,
        "status": {},
    }


def owned(manifest: Json, kind: str, name: str) -> Json:
    """The pod as a controller creates it."""
    api = "batch/v1" if kind == "Job" else "apps/v1"
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return manifest | {"metadata": manifest["metadata"] | {"ownerReferences": [owner]}}


def running(manifest: Json, node_name: str, *, phase: str = "Running", **metadata: Any) -> Json:
    """The pod as it is once it runs on a node."""
    about = manifest["metadata"] | {"uid": f"uid-of-{manifest['metadata']['name']}"} | metadata
    return manifest | {
        "metadata": about,
        "spec": manifest["spec"] | {"nodeName": node_name},
        "status": {"phase": phase},
    }


def review(
    manifest: Json | None,
    *,
    uid: str,
    operation: str = "CREATE",
    old: Json | None = None,
    user: str = "alice@example.com",
    dry_run: bool = False,
    **request: Any,
) -> Json:
    """The AdmissionReview that kube-apiserver sends about a pod."""
    metadata = (manifest or old or {})["metadata"]
    kind, resource = {"group": "", "version": "v1", "kind": "Pod"}, {"group": "", "version": "v1", "resource": "pods"}
    fields = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": metadata["namespace"],
        "operation": operation,
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": manifest,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
    }
    if "name" in metadata:
        fields["name"] = metadata["name"]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields | request}


def encode(value: object) -> bytes:
    """Write JSON as the API server does."""
    return json.dumps(value, separators=(",", ":")).encode()
