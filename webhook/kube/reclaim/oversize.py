"""Pods that are too large to be updated: what their eviction can do without.

etcd refuses an object of more than about 1.5 MiB (`--max-request-bytes`). A deletion updates the object before it
removes it, with a grace period of 0 too (tried on kube-apiserver 1.37), so a pod at that limit answers every eviction
and deletion with 500, until an update makes it smaller.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.names import Uid
from webhook.kube.objects import bounds, keys
from webhook.kube.objects.large_objects import READ_LABELS

LARGE_BYTES: Final = bounds.POD_BYTES
"""A pod that is smaller, as JSON, keeps everything: its size is not why its eviction fails."""

KEPT_BYTES: Final = 16 * 1024
"""How large the labels, the finalizers and the controller's reference of a pod may be, each, to be kept."""

_KUBERNETES: Final = "kubernetes.io"
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class Reduction(NamedTuple):
    """A JSON patch that makes a pod smaller, and the subresource that it is for, "" for the pod itself."""

    subresource: str
    patch: bytes


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[Any] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: dict[str, msgspec.Raw] = {}


_decoder: Final = msgspec.json.Decoder(_Pod)


def reduction_of(body: bytes, uid: Uid) -> Reduction | None:
    """Return how a large pod becomes smaller; None where it is not large, or has nothing to lose. `body` is the pod.

    Metadata goes first. Of it stay what Fairgate reads, the controller, finalizers, and the labels, by which budgets
    select; of the last three no more than KEPT_BYTES each. Without such metadata the statuses of its containers go: no
    tenant can make those smaller before. The only precondition is the UID: else its owner could prevent the patch by
    updates.
    """
    if len(body) < LARGE_BYTES:
        return None
    try:
        pod = _decoder.decode(body)
    except msgspec.MsgspecError:
        return None
    changes = _of_metadata(pod.metadata)
    subresource = "" if changes else "status"
    changes = changes or [{"op": "remove", "path": f"/status/{part}"} for part in _STATUSES if part in pod.status]
    if not changes:
        return None
    return Reduction(
        subresource, msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": uid}, *changes])
    )


def _of_metadata(metadata: _Metadata) -> list[dict[str, Any]]:
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    owners, finalizers = metadata.owner_references or [], metadata.finalizers or []
    kept = {
        "annotations": (annotations, _only(annotations, keys.STORED_ANNOTATIONS)),
        "labels": (labels, labels if _size(labels) <= KEPT_BYTES else _only(labels, READ_LABELS)),
        "ownerReferences": (owners, [each for each in owners if _is_kept(each)]),
        "finalizers": (finalizers, _kept_finalizers(finalizers)),
        "managedFields": (metadata.managed_fields or [{}], [{}]),  # one empty entry: the API server then stores none
    }
    return [
        {"op": "replace", "path": f"/metadata/{part}", "value": after}
        for part, (before, after) in kept.items()
        if before != after
    ]


def _only(there: Mapping[str, str], listed: Iterable[str]) -> dict[str, str]:
    return {key: there[key] for key in listed if key in there}


def _is_kept(owner: Mapping[str, Any]) -> bool:
    return owner.get("controller") is True and _size(owner) <= KEPT_BYTES


def _kept_finalizers(finalizers: list[str]) -> list[str]:
    """Return those that stay; of too many only Kubernetes' own, such as the one by which a Job counts the pod."""
    if _size(finalizers) <= KEPT_BYTES:
        return finalizers
    own = [each for each in finalizers if each.partition("/")[0].endswith(_KUBERNETES)]
    return own if _size(own) <= KEPT_BYTES else []


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))
