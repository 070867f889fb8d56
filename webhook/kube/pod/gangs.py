"""The gang of a pod, by the markers of schedulers and operators, or by Fairgate's own annotation."""

from collections.abc import Mapping
from sys import intern
from typing import Final

from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.gang import Gang
from webhook.core.model.names import GangId
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import shortened
from webhook.kube.objects.owners import controller_of
from webhook.kube.pod.domain_requests import domain_request

_LONGEST_SIZE: Final = 6
_SHOWN: Final = 12
"""Characters of an annotation that is ignored: a warning has 120 in all."""
_MAX_NAME: Final = 253
_NO_KEYS: Final[Mapping[str, str]] = {}
_ANNOTATIONS: Final = frozenset((keys.GANG, *keys.GANG_ANNOTATIONS, *keys.TOPOLOGIES))
_LABELS: Final = frozenset(keys.GANG_LABELS)
_SIZES: Final = frozenset(keys.GANG_SIZES)
_DESCRIBED: Final = frozenset(row.gang.marker for row in BUILT_IN if row.gang.marker)
"""The markers whose gangs have an object that says how many pods they have."""
_CONTROLLERS: Final = frozenset(row.kind.kind for row in BUILT_IN if row.gang.of_controller)


_Marker = tuple[str, str]
"""What names a gang: a key of the pod, and its value."""


def gang_of(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> Gang | None:
    """Return the gang of a pod, by the first marker that is there; None for a pod of its own.

    A pod that asks for one domain is in a gang with the other pods of its controller: only together can they be placed.
    """
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    is_annotated = not _ANNOTATIONS.isdisjoint(annotations)
    if spec.scheduling_group is None and not is_annotated and _LABELS.isdisjoint(labels):
        return None
    domain, asks = None, False
    if is_annotated:
        domain = domain_request(annotations)
        asks = is_requested(annotations, domain)
    marker = _marker(labels, annotations if is_annotated else _NO_KEYS, spec)
    if marker is not None:
        key, value = marker
        return Gang(
            _id(namespace, marker),
            value[:_MAX_NAME],
            declared_size(annotations),
            asks,
            key == keys.LWS_GROUP,
            key in _DESCRIBED,
            domain,
            key == keys.SCHEDULING_GROUP,
        )
    controller = controller_of(metadata, namespace=namespace) if asks else None
    if controller is None:
        return None
    found = gang_of_controller(namespace, controller.kind, controller.uid)
    return Gang(
        found,
        f"{controller.kind} {controller.name}",
        declared_size(annotations),
        asks,
        is_described=controller.kind in _CONTROLLERS,
        domain=domain,
    )


def is_requested(annotations: Mapping[str, str], domain: DomainRequest | None) -> bool:
    """Whether a pod's annotations make a gang of it and the other pods of its controller; `domain` is what it asks."""
    return annotations.get(keys.GANG) == "true" or bool(domain is not None and domain.key)


def gang_id(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> GangId | None:
    """Return the identity of a pod's gang."""
    found = gang_of(metadata, spec, namespace=namespace)
    return None if found is None else found.id


def gang_of_controller(namespace: str, kind: str, uid: str) -> GangId:
    """Return the identity of the gang that annotation fairgate.dev/gang makes of a controller's pods."""
    return _id(namespace, (kind, uid))


def gang_of_marker(namespace: str, key: str, value: str) -> GangId:
    """Return the identity of the gang that a key and its value name."""
    return _id(namespace, (key, value))


def gang_of_pod_group(namespace: str, name: str) -> GangId:
    """Return the identity of the gang of a PodGroup of Kubernetes."""
    return _id(namespace, (keys.SCHEDULING_GROUP, name))


def marker_of(gang: GangId, namespace: str) -> tuple[str, str]:
    """Return the key and the value that name a gang; for one by annotation, its controller's kind and UID."""
    key, _, value = gang.removeprefix(f"{namespace}/").partition("=")
    return key, value


def declared_size(annotations: Mapping[str, str]) -> int:
    """Return the size of a gang by a pod's annotations; 0 without one that is a number."""
    if _SIZES.isdisjoint(annotations):
        return 0
    size = next(annotations[name] for name in keys.GANG_SIZES if name in annotations)
    return int(size) if size.isdecimal() and len(size) <= _LONGEST_SIZE else 0


def ignored_of_gang(annotations: Mapping[str, str], gang: Gang | None, *, has_controller: bool) -> str:
    """Return what is ignored of what a pod says about its gang, and what is assumed instead; "" for nothing."""
    if gang is None:
        if has_controller or annotations.get(keys.GANG) != "true":
            return ""
        return f"annotation {keys.GANG} is ignored: the pod has no controller and no mark of a gang"
    if gang.size or _SIZES.isdisjoint(annotations):
        return ""
    name = next(name for name in keys.GANG_SIZES if name in annotations)
    found = "its object says how many pods it has" if gang.is_described else "pods that come together are the gang"
    return f"annotation {name} {shortened(annotations[name], _SHOWN)!r} is no number: {found}"


def gang_problem(metadata: objects.ObjectMeta) -> str | None:
    """Return what is wrong with annotation fairgate.dev/gang of a pod; None if nothing is."""
    value = (metadata.annotations or _NO_KEYS).get(keys.GANG)
    if value in (None, "true", "false"):
        return None
    return shortened(f"annotation {keys.GANG}: expected true or false, got {value!r}")


def _marker(labels: Mapping[str, str], annotations: Mapping[str, str], spec: objects.PodSpec) -> _Marker | None:
    """Return the key that names a gang, and its value."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return keys.SCHEDULING_GROUP, spec.scheduling_group.pod_group_name
    for name in keys.GANG_ANNOTATIONS if annotations else ():
        if value := annotations.get(name):
            return name, value
    for name in keys.GANG_LABELS:
        if value := labels.get(name):
            return name, value
    return None


def _id(namespace: str, marker: _Marker) -> GangId:
    key, value = marker
    return GangId(intern(f"{namespace}/{key}={value[:_MAX_NAME]}"))
