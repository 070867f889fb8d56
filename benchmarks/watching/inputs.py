"""Inputs of watch.py: a pod of 4.3 KB and nodes of 11.6 KB, as the API server lists them, with managedFields."""

import json
from dataclasses import dataclass
from typing import Any, Self

from tests.realistic import realistic_pod

Json = dict[str, Any]
POD_BYTES = 4_300
NODE_BYTES = 11_600
NAME, NODE = "pod-@name@", "node-@node@"
UID, VERSION = "@uid@", "@version@"


def pod() -> Json:
    """Return a running training worker; fields that differ between pods are placeholders."""
    made = realistic_pod(gpus=1, namespace="vision")
    made["metadata"] |= {"name": NAME, "uid": UID, "resourceVersion": VERSION, "generateName": "pod-"}
    spec = made["spec"] | {"nodeName": NODE}
    spec["containers"], spec["volumes"] = spec["containers"][:1], spec["volumes"][:3]
    spec["containers"][0]["env"] = spec["containers"][0]["env"][:8]
    spec.pop("initContainers")
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-03-01T10:00:09Z"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    status = {
        "phase": "Running",
        "conditions": conditions,
        "hostIP": "10.0.0.7",
        "podIP": "10.1.0.9",
        "qosClass": "Burstable",
    }
    return _padded(made | {"spec": spec, "status": status}, POD_BYTES)


def node() -> Json:
    """Return a ready node of 16 GPUs with its images; its name is a placeholder."""
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.F{n}": "true" for n in range(30)} | {
        "kubernetes.io/hostname": NODE,
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    }
    images = [
        {"names": [f"registry.example.com/team/image-{n}@sha256:{'0' * 64}"], "sizeBytes": 10**9 + n} for n in range(50)
    ]
    room = {"cpu": "128", "memory": "2048Gi", "pods": "110", "nvidia.com/gpu": "16", "ephemeral-storage": "3Ti"}
    kinds = (("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True"))
    conditions = [
        {"type": kind, "status": status, "lastHeartbeatTime": "2026-03-01T10:00:09Z"} for kind, status in kinds
    ]
    metadata = {"name": NODE, "uid": f"uid-of-{NODE}", "resourceVersion": "7", "labels": labels}
    status = {"allocatable": room, "capacity": room, "conditions": conditions, "images": images}
    return _padded({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": status}, NODE_BYTES)


def _padded(thing: Json, size: int) -> Json:
    """Add managed fields to an object, by its size."""
    fields: Json = {}
    entry = {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    thing["metadata"]["managedFields"] = [entry | {"fieldsV1": fields}]
    while len(json.dumps(thing, separators=(",", ":"))) < size:
        fields[f"f:field-{len(fields)}"] = {".": {}, "f:name": {}, "f:value": {}}
    return thing


def nodes(count: int) -> list[bytes]:
    """Return this many nodes, which differ by name."""
    text = json.dumps(node(), separators=(",", ":"))
    return [text.replace(NODE, f"node-{index:05}").encode() for index in range(count)]


@dataclass(frozen=True, slots=True)
class Stamp:
    """One version of a pod: which pod of that name it is, its version, whether it has a node."""

    generation: int
    version: int
    is_bound: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A pod as bytes, split at the placeholders."""

    parts: tuple[bytes, ...]
    marks: tuple[str, ...]
    nodes: int

    @classmethod
    def of(cls, thing: Json, *, nodes: int) -> Self:
        """Split a pod at its placeholders."""
        text = json.dumps(thing, separators=(",", ":"))
        marks = sorted((NAME, NODE, UID, VERSION), key=text.index)
        parts = []
        for mark in marks:
            part, _, text = text.partition(mark)
            parts.append(part.encode())
        return cls((*parts, text.encode()), tuple(marks), nodes)

    def filled(self, index: int, stamp: Stamp) -> bytes:
        """Return one version of one pod."""
        values = {
            NAME: b"pod-%06d" % index,
            NODE: b"node-%05d" % (index % self.nodes) if stamp.is_bound else b"",
            UID: b"5d2f0a4e-94c1-4f3a-%04x-%012x" % (stamp.generation & 0xFFFF, index),
            VERSION: b"%d" % stamp.version,
        }
        pieces = [self.parts[0]]
        for mark, part in zip(self.marks, self.parts[1:], strict=True):
            pieces += (values[mark], part)
        return b"".join(pieces)
