"""Partial decoding of a pod that cannot be decoded completely, so that its GPUs are still counted."""

from typing import Any, Final

import msgspec

from webhook.kube.objects import objects, quantity

UNREADABLE_AMOUNT: Final = 16
"""The number that an unreadable amount counts as: no node has more GPUs."""

_TEXTS: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")

_Json = dict[str, Any]


def recovered_pod(found: objects.Pod | bytes) -> objects.Pod | None:
    """Return a pod's identity, node and container resources; None if it has no UID.

    All other fields are dropped, and an unreadable amount counts as a large one.
    """
    if isinstance(found, objects.Pod):
        return _with_amounts(found)
    whole = _json(found)
    metadata, spec = _mapping(whole.get("metadata")), _mapping(whole.get("spec"))
    made = {
        "metadata": {
            **{key: metadata[key] for key in _TEXTS if isinstance(metadata.get(key), str)},
            **{key: _texts(metadata.get(key)) for key in ("labels", "annotations")},
        },
        "spec": {
            **{part: _containers(spec.get(part)) for part in ("containers", "initContainers")},
            "nodeName": spec["nodeName"] if isinstance(spec.get("nodeName"), str) else "",
        },
        "status": {key: str(_mapping(whole.get("status")).get(key) or "") for key in ("phase", "startTime")},
    }
    return msgspec.convert(made, objects.Pod) if "uid" in made["metadata"] else None


def _with_amounts(pod: objects.Pod) -> objects.Pod:
    """Return a pod with readable container resources, and without other fields that add to its demand."""
    spec = objects.PodSpec(
        [_readable(each) for each in pod.spec.containers],
        [_readable(each) for each in pod.spec.init_containers or ()],
        node_name=pod.spec.node_name,
        resource_claims=pod.spec.resource_claims,
        termination_grace_period_seconds=pod.spec.termination_grace_period_seconds,
    )
    status = pod.status
    kept = (
        None
        if status is None
        else objects.PodStatus(
            status.phase, start_time=status.start_time, resource_claim_statuses=status.resource_claim_statuses
        )
    )
    return objects.Pod(pod.metadata, spec, kept)


def _readable(container: objects.Container) -> objects.Container:
    resources = _raw(_json(bytes(container.resources)))
    return objects.Container(container.name, resources, restart_policy=container.restart_policy)


def _containers(listed: object) -> list[_Json]:
    containers = [_mapping(each) for each in listed] if isinstance(listed, list) else []
    return [
        {"name": str(each.get("name", "")), "resources": _raw(_mapping(each.get("resources")))} for each in containers
    ]


def _raw(resources: _Json) -> msgspec.Raw:
    read = {side: _amounts(_mapping(resources.get(side))) for side in ("limits", "requests")}
    return msgspec.Raw(msgspec.json.encode(read))


def _amounts(listed: _Json) -> _Json:
    return {name: value if _is_amount(name, value) else UNREADABLE_AMOUNT for name, value in listed.items()}


def _is_amount(name: str, value: object) -> bool:
    try:
        return isinstance(value, str | int | float) and quantity.amount(name, value) >= 0
    except ValueError:
        return False


def _json(raw: bytes) -> _Json:
    try:
        return _mapping(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}


def _texts(found: object) -> dict[str, str]:
    return {key: value for key, value in _mapping(found).items() if isinstance(value, str)}


def _mapping(value: object) -> _Json:
    return value if isinstance(value, dict) else {}
