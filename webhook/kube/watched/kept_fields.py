"""The fields of objects that a world file keeps.

Only the fields that Fairgate reads are kept. So a file that is shared contains no images, commands, environment, volume
sources or foreign annotations; it contains labels, since selectors need them.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.nodes import nodes
from webhook.kube.nodes.nodes import UPDATED
from webhook.kube.objects import keys
from webhook.kube.pod.outcomes import is_fault_of_node
from webhook.kube.workloads.unknown_kinds import KIND

Json = Mapping[str, Any]


_ALL: Final = None
"""The shape of a value that is kept completely."""

Shape = Mapping[str, Any] | None
"""The fields that are kept, each with its own shape."""

_METADATA: Final = dict.fromkeys(("name", "namespace", "uid", "labels", "annotations", "creationTimestamp"), _ALL)
_HEAD: Final = {"apiVersion": _ALL, "kind": _ALL, "metadata": _METADATA}
_CONTAINER: Final[Shape] = {
    "name": _ALL,
    "resources": _ALL,
    "ports": dict.fromkeys(("hostPort", "protocol", "hostIP"), _ALL),
    "restartPolicy": _ALL,
}
_RUN: Final[Shape] = {"startedAt": _ALL, "finishedAt": _ALL}
_CONTAINER_STATUS: Final[Shape] = {
    **dict.fromkeys(("name", "allocatedResources", "resources", "restartCount"), _ALL),
    "state": {"running": _RUN, "terminated": _RUN},
}
_POD: Final[Shape] = {
    **_HEAD,
    "metadata": {
        **_METADATA,
        "ownerReferences": dict.fromkeys(("apiVersion", "kind", "name", "uid", "controller"), _ALL),
        "deletionTimestamp": _ALL,
        "deletionGracePeriodSeconds": _ALL,
    },
    "spec": {
        "containers": _CONTAINER,
        "initContainers": _CONTAINER,
        "volumes": {"persistentVolumeClaim": {"claimName": _ALL}, "ephemeral": {}},
        **dict.fromkeys(
            (
                "nodeName",
                "schedulerName",
                "schedulingGates",
                "priorityClassName",
                "priority",
                "preemptionPolicy",
                "nodeSelector",
                "affinity",
                "tolerations",
                "topologySpreadConstraints",
                "overhead",
                "resources",
                "resourceClaims",
                "schedulingGroup",
                "terminationGracePeriodSeconds",
            ),
            _ALL,
        ),
    },
    "status": {
        **dict.fromkeys(("phase", "reason", "startTime", "nominatedNodeName"), _ALL),
        "resourceClaimStatuses": {"name": _ALL, "resourceClaimName": _ALL},
        "containerStatuses": _CONTAINER_STATUS,
        "initContainerStatuses": _CONTAINER_STATUS,
        "allocatedResources": _ALL,
        "resources": _ALL,
        "conditions": dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), _ALL),
    },
}
_OBSTACLES: Final = ("PodScheduled", "Ready")
_RESIZE: Final = "PodResize"
"""The conditions of pods that are kept: what keeps it off every node, or not ready, how its resize stands, and (as
DISRUPTION) when it was evicted."""
_REQUEST: Final = dict.fromkeys(
    ("name", "deviceClassName", "allocationMode", "count", "adminAccess", "selectors", "capacity", "tolerations"), _ALL
)
_CLAIM: Final[Shape] = {"devices": {"requests": {**_REQUEST, "exactly": _REQUEST, "firstAvailable": _REQUEST}}}
_RESULT: Final[Shape] = dict.fromkeys(("request", "driver", "pool", "device", "shareID", "consumedCapacity"), _ALL)
_TAINT: Final = dict.fromkeys(("key", "value", "effect"), _ALL)
_DEVICE: Final = {
    **dict.fromkeys(("attributes", "allowMultipleAllocations", "capacity", "consumesCounters"), _ALL),
    "taints": _TAINT,
}
_NODE: Final[Shape] = {
    **_HEAD,
    "spec": {"unschedulable": _ALL, "taints": _TAINT},
    "status": {"allocatable": _ALL, "capacity": _ALL, "conditions": {"type": _ALL, "status": _ALL}},
}
SHAPES: Final[Mapping[str, Shape]] = {
    "Pod": _POD,
    "Node": _NODE,
    "Namespace": _HEAD,
    "PriorityClass": {**_HEAD, "value": _ALL, "preemptionPolicy": _ALL},
    "DeviceClass": {**_HEAD, "spec": {"selectors": _ALL, "extendedResourceName": _ALL}},
    "ResourceClaim": {
        **_HEAD,
        "spec": _CLAIM,
        "status": {
            "allocation": {"devices": {"results": _RESULT}, "nodeSelector": _ALL},
            "reservedFor": {"resource": _ALL, "uid": _ALL},
        },
    },
    "ResourceClaimTemplate": {**_HEAD, "spec": {"spec": _CLAIM}},
    KIND: {**_HEAD, "spec": {"scaleTargetRef": {"kind": _ALL, "name": _ALL}, "minReplicas": _ALL}},
    "CustomResourceDefinition": {
        **_HEAD,
        "spec": {"group": _ALL, "scope": _ALL, "names": {"plural": _ALL, "kind": _ALL}},
    },
    "ConfigMap": _HEAD,
    "DeviceTaintRule": {**_HEAD, "spec": {"deviceSelector": _ALL, "taint": _TAINT}},
    "PodGroup": {
        **_HEAD,
        "spec": dict.fromkeys(("schedulingPolicy", "disruptionMode", "schedulingConstraints", "resourceClaims"), _ALL),
    },
    "PodDisruptionBudget": {
        **_HEAD,
        "spec": dict.fromkeys(("selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"), _ALL),
        "status": dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), _ALL),
    },
    "LimitRange": {**_HEAD, "spec": {"limits": _ALL}},
    keys.TEAM_LEDGER: {**_HEAD, "status": {"team": _ALL}, "ledger": {"inFlight": _ALL}},
    nodes.KIND: {
        **_HEAD,
        "spec": {"claimRef": {"namespace": _ALL, "name": _ALL}, "nodeAffinity": _ALL},
        "status": {"phase": _ALL},
    },
    "ResourceSlice": {
        **_HEAD,
        "spec": {
            "driver": _ALL,
            "pool": {"name": _ALL, "generation": _ALL},
            "nodeName": _ALL,
            "sharedCounters": _ALL,
            "devices": {"name": _ALL, **_DEVICE, "basic": _DEVICE},
        },
    },
}
"""The fields of each kind."""

_ENDED: Final = ("Succeeded", "Failed")
_READ_ANNOTATIONS: Final = frozenset((*keys.STORED_ANNOTATIONS, UPDATED))


def has_ended_for_good(found: Json) -> bool:
    """Whether a world needs nothing of a pod: it ended, and not since its node rejected it."""
    status = found.get("status")
    if found.get("kind") != "Pod" or not isinstance(status, Mapping) or status.get("phase") not in _ENDED:
        return False
    return not is_fault_of_node(str(status.get("phase")), str(status.get("reason") or ""))


def kept_fields(found: Json, *, annotations: frozenset[str]) -> Json | None:
    """Return the fields of an object that a world file keeps; None if its kind is not in SHAPES.

    Of the annotations it keeps those that are read, and `annotations`, from which the policy reads users.
    """
    kind = found.get("kind")
    if not isinstance(kind, str) or kind not in SHAPES:
        return None
    kept: dict[str, Any] = _picked(found, SHAPES[kind])
    metadata = kept.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), Mapping):
        selected = {
            key: value
            for key, value in metadata.pop("annotations").items()
            if key in annotations or key in _READ_ANNOTATIONS
        }
        if selected:
            metadata["annotations"] = selected
    if kind == "Pod" and isinstance(status := kept.get("status"), dict) and "conditions" in status:
        conditions = [each for each in status.pop("conditions") or () if _is_kept(each)]
        if conditions:
            status["conditions"] = conditions
    return kept


def _is_kept(condition: object) -> bool:
    """Whether a condition of a pod says something that a decision reads."""
    if not isinstance(condition, Mapping):
        return False
    kind, status = condition.get("type"), condition.get("status")
    is_state = (kind, status) == (DISRUPTION, "True") or (kind in _OBSTACLES and status == "False")
    return is_state or (isinstance(kind, str) and kind.startswith(_RESIZE))


def _picked(value: Any, shape: Shape) -> Any:  # noqa: ANN401 - JSON values have no common type
    if shape is None:
        return value
    if isinstance(value, list):
        return [picked for each in value if (picked := _picked(each, shape)) != {}]
    if isinstance(value, Mapping):
        return {key: _picked(value[key], shape[key]) for key in shape if key in value}
    return value
