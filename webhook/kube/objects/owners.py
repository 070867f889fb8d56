"""The controller of an object by metadata.ownerReferences, one level at a time. Pure translation."""

import re
from typing import Final

import msgspec

from webhook.kube.objects import objects
from webhook.kube.objects.events import ObjectRef

OWNER_KINDS: Final = {
    ("", "Pod"): "pods",
    ("", "ReplicationController"): "replicationcontrollers",
    ("apps", "DaemonSet"): "daemonsets",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("ray.io", "RayCluster"): "rayclusters",
    ("serving.knative.dev", "Configuration"): "configurations",
    ("serving.knative.dev", "Revision"): "revisions",
}
"""Kinds that other controllers create: only their owners are looked up, and RBAC allows no others."""

MAX_FIELD: Final = 317
"""Maximum characters of an owner's fields (apiVersion is the longest): they are stored, and tenants set the length."""

ACCEPT: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""The response has metadata only: no template, no status."""


class _Object(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta


_PART: Final = re.compile(r"[A-Za-z0-9.-]{1,253}")
_decoder: Final = msgspec.json.Decoder(_Object)


def controller_of(metadata: objects.ObjectMeta, *, namespace: str) -> ObjectRef | None:
    """Return the controller of an object in a namespace; None if it has none, or if the reference is incomplete."""
    for owner in metadata.owner_references or ():
        if owner.controller:
            texts = (owner.api_version, owner.kind, owner.name, owner.uid)
            if not all(texts) or max(map(len, texts)) > MAX_FIELD:
                return None
            return ObjectRef(owner.kind, namespace, owner.name, owner.uid, owner.api_version)
    return None


def path_of(ref: ObjectRef) -> str | None:
    """Return the API path of an object of one of OWNER_KINDS; None for any other kind."""
    group, _, version = ref.api_version.rpartition("/")
    plural = OWNER_KINDS.get((group, ref.kind))
    if plural is None or not (is_plain(version) and is_plain(ref.name)):
        return None
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{base}/namespaces/{ref.namespace}/{plural}/{ref.name}"


def owner_in(body: bytes, ref: ObjectRef) -> ObjectRef | None:
    """Return the controller of the object in a response; None if it has none, or if its UID is not that of `ref`.

    Raises ValueError if the body is not an object.
    """
    metadata = _decoder.decode(body).metadata
    found = controller_of(metadata, namespace=ref.namespace) if metadata.uid == ref.uid else None
    return None if found is None or found == ref else found


def is_plain(part: str) -> bool:
    """Whether a tenant's text is safe as one segment of a path."""
    return part not in (".", "..") and _PART.fullmatch(part) is not None
