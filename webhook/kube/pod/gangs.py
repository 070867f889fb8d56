"""The gang of a pod, by the markers of schedulers and operators, or by Fairgate's own annotation."""

from collections.abc import Mapping
from sys import intern
from typing import Final, NamedTuple

from webhook.core.model.gang import Gang
from webhook.core.model.names import GangId
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import shortened
from webhook.kube.objects.owners import controller_of
from webhook.kube.pod.domain_requests import domain_request

_LONGEST_SIZE: Final = 6
_SHOWN: Final = 30
_MAX_NAME: Final = 253
_NO_KEYS: Final[Mapping[str, str]] = {}
_ANNOTATIONS: Final = frozenset((keys.GANG, *keys.GANG_ANNOTATIONS, *keys.TOPOLOGIES))
_LABELS: Final = frozenset(keys.GANG_LABELS)
SCHEDULING_GROUP: Final = "schedulingGroup"
"""The key of a gang that spec.schedulingGroup names."""
_DESCRIBED: Final = frozenset((SCHEDULING_GROUP, *keys.DESCRIBED_GANGS))
"""The markers whose gangs have an object that says how many pods they have."""
_CONTROLLERS: Final = frozenset({"Job", "ReplicaSet", "ReplicationController", "StatefulSet"})


class _Marker(NamedTuple):
    """What names a gang: a key of the pod, and its value."""

    key: str
    value: str


def gang_of(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> Gang | None:
    """Return the gang of a pod, by the first marker that is there; None for a pod of its own.

    A pod that asks for one domain is in a gang with the other pods of its controller: only together can they be placed.
    """
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    if spec.scheduling_group is None and _LABELS.isdisjoint(labels) and _ANNOTATIONS.isdisjoint(annotations):
        return None
    domain = domain_request(annotations) if annotations else None
    is_requested = annotations.get(keys.GANG) == "true" or bool(domain is not None and domain.key)
    marker = _marker(labels, annotations, spec)
    if marker is not None:
        return Gang(
            _id(namespace, marker),
            marker.value[:_MAX_NAME],
            declared_size(annotations),
            is_requested,
            is_ordered=marker.key == keys.LWS_GROUP,
            is_described=marker.key in _DESCRIBED,
            domain=domain,
        )
    controller = controller_of(metadata, namespace=namespace) if is_requested else None
    if controller is None:
        return None
    found = gang_of_controller(namespace, controller.kind, controller.uid)
    return Gang(
        found,
        f"{controller.kind} {controller.name}",
        declared_size(annotations),
        is_requested,
        is_described=controller.kind in _CONTROLLERS,
        domain=domain,
    )


def gang_id(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> GangId | None:
    """Return the identity of a pod's gang."""
    found = gang_of(metadata, spec, namespace=namespace)
    return None if found is None else found.id


def gang_of_controller(namespace: str, kind: str, uid: str) -> GangId:
    """Return the identity of the gang that annotation fairgate.dev/gang makes of a controller's pods."""
    return _id(namespace, _Marker(kind, uid))


def gang_of_pod_group(namespace: str, name: str) -> GangId:
    """Return the identity of the gang of a PodGroup of Kubernetes."""
    return _id(namespace, _Marker(SCHEDULING_GROUP, name))


def marker_of(gang: GangId, namespace: str) -> tuple[str, str]:
    """Return the key and the value that name a gang; for one by annotation, its controller's kind and UID."""
    key, _, value = gang.removeprefix(f"{namespace}/").partition("=")
    return key, value


def declared_size(annotations: Mapping[str, str]) -> int:
    """Return the size of a gang by a pod's annotations; 0 without one that is a number."""
    size = next((annotations[name] for name in keys.GANG_SIZES if name in annotations), "")
    return int(size) if size.isdecimal() and len(size) <= _LONGEST_SIZE else 0


def gang_problem(metadata: objects.ObjectMeta) -> str | None:
    """Return what is wrong with annotation fairgate.dev/gang of a pod; None if nothing is."""
    value = (metadata.annotations or _NO_KEYS).get(keys.GANG)
    if value in (None, "true", "false"):
        return None
    return shortened(f"annotation {keys.GANG}: expected true or false, got {value!r}")


def ignored_marks(annotations: Mapping[str, str], gang: Gang | None) -> str:
    """Return why an annotation about the gang of a pod is ignored, and what is assumed; "" if none is."""
    if gang is None:
        is_asked = annotations.get(keys.GANG) == "true"
        why = "the pod has no controller and no mark of a gang, and starts alone"
        return f"annotation {keys.GANG} is ignored: {why}" if is_asked else ""
    name = None if gang.size else next((name for name in keys.GANG_SIZES if name in annotations), None)
    if name is None:
        return ""
    value = repr(shortened(annotations[name], _SHOWN))
    return f"annotation {name} {value} is ignored: it is no number of pods, so the gang counts as one that states none"


def _marker(labels: Mapping[str, str], annotations: Mapping[str, str], spec: objects.PodSpec) -> _Marker | None:
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return _Marker(SCHEDULING_GROUP, spec.scheduling_group.pod_group_name)
    for marked, names in ((annotations, keys.GANG_ANNOTATIONS), (labels, keys.GANG_LABELS)):
        for name in names if marked else ():
            if value := marked.get(name):
                return _Marker(name, value)
    return None


def _id(namespace: str, marker: _Marker) -> GangId:
    return GangId(intern(f"{namespace}/{marker.key}={marker.value[:_MAX_NAME]}"))
