"""Builders with defaults: a test states only what matters to it.

`pod`, `node` and `review` make what Kubernetes sends, as plain dicts and bytes; `core_pod` and
`core_node` make what the core decides on.
"""

import json
from collections.abc import Mapping
from typing import Any

from webhook.core.model.amounts import ONE_GPU, GpuModel, Namespace, NodeName, ResourceName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS, Constraints, Taint
from webhook.core.model.demand import Demand, demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Pod
from webhook.core.model.policy import BUILT_IN_RESOURCES

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
A100 = "NVIDIA-A100-SXM4-80GB"
CPU_PER_POD = "6"
MEMORY_PER_POD = "48Gi"


def container(
    name="train", *, gpus: int | str | None = 1, resource=GPU, cpu=CPU_PER_POD, memory=MEMORY_PER_POD, **more: Any
) -> Json:
    """A container with `gpus` in requests and limits; None leaves GPUs out."""
    requests: Json = {"cpu": cpu, "memory": memory}
    limits: Json = {}
    if gpus is not None:
        requests[resource] = limits[resource] = str(gpus)
    resources = {"requests": requests, "limits": limits}
    return {"name": name, "image": "registry.test/train:1", "resources": resources, **more}


def pod(
    name="train-0",
    *,
    namespace="vision",
    uid: str | None = None,
    gpus: int | str | None = 1,
    resource=GPU,
    node: str | None = None,
    phase: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    controller: tuple[str, str] | None = None,
    containers: list[Json] | None = None,
    **spec: Any,
) -> Json:
    """A pod dict. `controller` is (kind, name); further keywords go into the spec as they are."""
    metadata: Json = {"name": name, "namespace": namespace}
    if uid is not None:
        metadata["uid"] = uid
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if controller is not None:
        kind, owner = controller
        api = "batch/v1" if kind == "Job" else "apps/v1"
        metadata["ownerReferences"] = [
            {"apiVersion": api, "kind": kind, "name": owner, "uid": f"uid-of-{owner}", "controller": True}
        ]
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers or [container(gpus=gpus, resource=resource)], **spec},
    }
    if node is not None:
        made["spec"]["nodeName"] = node
    if phase is not None:
        made["status"] = {"phase": phase}
    return made


def node(
    name="node-1",
    *,
    gpus: int | None = 10,
    resource=GPU,
    cpu="64",
    memory="512Gi",
    pods="110",
    model: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: list[Json] | None = None,
    is_ready: bool = True,
    is_cordoned: bool = False,
) -> Json:
    """A node dict with ten GPUs, 64 cores and 512 GiB."""
    allocatable: Json = {"cpu": cpu, "memory": memory, "pods": pods}
    if gpus is not None:
        allocatable[resource] = str(gpus)
    spec: Json = {}
    if taints is not None:
        spec["taints"] = taints
    if is_cordoned:
        spec["unschedulable"] = True
    own = {"kubernetes.io/hostname": name, **({"nvidia.com/gpu.product": model} if model else {}), **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own},
        "spec": spec,
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        },
    }


def autoscaler(target: str, *, namespace="vision", minimum: int | None = 1, kind="Deployment", **more: Any) -> Json:
    """A HorizontalPodAutoscaler of a Deployment, named as that; further keywords are fields of the object."""
    least = {} if minimum is None else {"minReplicas": minimum}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": target, "namespace": namespace},
        "spec": {"scaleTargetRef": {"kind": kind, "name": target}, "maxReplicas": 9, **least},
        **more,
    }


def replicas(name: str, count: int, *, namespace="vision", hash_="5d8f", **more: Any) -> list[Json]:
    """Ready pods of a Deployment; further keywords as for `pod`, with more labels."""
    labels = {"pod-template-hash": hash_, **more.pop("labels", {})}
    return [
        pod(
            f"{name}-{hash_}-{number}",
            namespace=namespace,
            uid=f"{namespace}-{name}-{number}",
            controller=("ReplicaSet", f"{name}-{hash_}"),
            labels=labels,
            phase="Running",
            **more,
        )
        for number in range(count)
    ]


def review(
    of: Json | None = None,
    *,
    old: Json | None = None,
    operation="CREATE",
    uid="705ab4f5-6393-11e8-b7cc-42010a800002",
    namespace="vision",
    username="alice@example.com",
    groups=("system:authenticated",),
    dry_run: bool | None = False,
    **request: Any,
) -> bytes:
    """The body of an AdmissionReview of a pod (the default pod, unless given); further keywords go into the request."""
    subject = of if of is not None or operation == "DELETE" else pod(namespace=namespace)
    asked: Json = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": ((subject or old or {}).get("metadata") or {}).get("name", ""),
        "namespace": namespace,
        "operation": operation,
        "userInfo": {"username": username, "groups": list(groups)},
        "object": subject,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
        **request,
    }
    return reviewed(**asked)


def reviewed(**request: Any) -> bytes:
    """The body of an AdmissionReview with these fields of its request, and no others."""
    return encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def encode(value: object) -> bytes:
    """Compact JSON, as the API server writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def demand(gpus: int = 1, *, resource=GPU, cpu_milli: int = 6000, memory_bytes: int = 48 * 2**30) -> Demand:
    """A demand of whole GPUs with the usual cpu and memory, and the one pod that every pod is."""
    requests = {"cpu": cpu_milli, "memory": memory_bytes, "pods": 1, resource: gpus}
    weights = {**BUILT_IN_RESOURCES, ResourceName(resource): ONE_GPU}
    return demand_of({ResourceName(name): amount for name, amount in requests.items()}, weights)


def core_pod(
    name="train-0",
    *,
    namespace="vision",
    uid="uid-of-train-0",
    gpus: int = 1,
    constraints: Constraints = NO_CONSTRAINTS,
    **fields: Any,
) -> Pod:
    """A core Pod; further keywords are its fields."""
    return Pod(
        namespace=Namespace(namespace),
        demand=demand(gpus),
        name=name,
        uid=Uid(uid),
        constraints=constraints,
        **fields,
    )


def core_node(
    name="node-1",
    *,
    gpus: int = 10,
    resource=GPU,
    model="",
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    is_ready: bool = True,
    is_cordoned: bool = False,
) -> Node:
    """A core Node with ten GPUs, 64 cores and 512 GiB."""
    model_label = "nvidia.com/gpu.product" if model else ""
    return Node(
        name=NodeName(name),
        allocatable={
            ResourceName("cpu"): 64_000,
            ResourceName("memory"): 512 * 2**30,
            ResourceName("pods"): 110,
            ResourceName(resource): gpus,
        },
        labels={"kubernetes.io/hostname": name, **({model_label: model} if model else {}), **(labels or {})},
        taints=taints,
        model=GpuModel(model),
        model_label=model_label,
        is_ready=is_ready,
        is_cordoned=is_cordoned,
    )


def decision_of(pod: Json) -> Json:
    """The decision on a pod; nodes that its annotation does not repeat are those of its node affinity."""
    decision = json.loads(pod["metadata"]["annotations"]["fairgate.dev/decision"])
    if decision.pop("listed", 0):
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        fields = [field for term in required["nodeSelectorTerms"] for field in term["matchFields"]]
        decision["nodes"] = list(dict.fromkeys(field["values"][0] for field in fields if field["operator"] == "In"))
    return decision
