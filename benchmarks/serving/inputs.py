"""Inputs of serve.py: the posted review, and the world and the policy it is judged by."""

import json

BODY_BYTES = 9_500


def review_body(namespace: str = "vision") -> bytes:
    """Return an AdmissionReview as the API server sends it for a training worker, with managedFields.

    A namespace without a team is refused.
    """
    image = "registry.example.com/train:2026.3"
    env = [{"name": f"VARIABLE_{i}", "value": f"value-of-variable-{i}"} for i in range(17)]
    volumes = [{"name": f"data-{i}", "persistentVolumeClaim": {"claimName": f"claim-{i}"}} for i in range(5)]
    mounts = [{"name": f"data-{i}", "mountPath": f"/mnt/data-{i}", "readOnly": i % 2 == 0} for i in range(5)]
    worker = {
        "name": "pytorch",
        "image": image,
        "command": ["torchrun", "--nnodes=4", "train.py"],
        "env": env,
        "volumeMounts": mounts,
        "resources": {
            "requests": {"cpu": "6", "memory": "48Gi", "nvidia.com/gpu": "1"},
            "limits": {"cpu": "6", "memory": "48Gi", "nvidia.com/gpu": "1"},
        },
    }
    helper = {"name": "logs", "image": image, "env": env[:4], "resources": {"requests": {"cpu": "100m"}}}
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "train",
        "uid": "5d2f0a4e-94c1-4f3a-9d43-6a2a3e1c7f10",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": "train-worker-0",
        "namespace": namespace,
        "creationTimestamp": None,
        "labels": {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-type": "worker"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "ownerReferences": [owner],
        "managedFields": [],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [worker, helper],
            "initContainers": [{"name": "fetch", "image": image, "command": ["sh", "-c", "fetch"], "env": env[:8]}],
            "volumes": volumes,
            "restartPolicy": "OnFailure",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default-editor",
        },
        "status": {},
    }
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": namespace,
        "name": "train-worker-0",
        "userInfo": {
            "username": "system:serviceaccount:kubeflow:training-operator",
            "groups": ["system:authenticated"],
        },
        "object": pod,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    fields = {f"f:field-{i}": {"f:name": {}, "f:value": {}} for i in range(400)}
    while fields and len(json.dumps(review | {"pad": fields})) > BODY_BYTES:
        fields.popitem()
    metadata["managedFields"] = [
        {"manager": "training-operator", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}
    ]
    return json.dumps(review).encode()


def world(nodes: int, pods_per_node: int) -> dict[str, object]:
    """Return a v1 List of nodes of 16 GPUs with running one-GPU pods."""
    items: list[object] = []
    room = {"cpu": "128", "memory": "2048Gi", "pods": "110", "nvidia.com/gpu": "16"}
    for n in range(nodes):
        name = f"node-{n:05}"
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        status = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
        items.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
        )
        for p in range(pods_per_node):
            wants = {"cpu": "6", "memory": "48Gi", "nvidia.com/gpu": "1"}
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"pod-{n}-{p}", "namespace": "vision", "uid": f"uid-{n}-{p}"},
                    "spec": {
                        "nodeName": name,
                        "containers": [{"name": "main", "resources": {"requests": wants, "limits": wants}}],
                    },
                    "status": {"phase": "Running"},
                }
            )
    return {"apiVersion": "v1", "kind": "List", "items": items}


def policy(gpus: int) -> dict[str, object]:
    """Return a policy in which every request of the run is within its team's share."""
    team = {"name": "vision", "namespaces": ["vision"], "gpus": {"guaranteed": gpus, "limit": gpus}}
    pool = {"name": "a100", "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}
    return {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy", "teams": [team], "pools": [pool]}
