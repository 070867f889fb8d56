"""Who owns an object: its controller by metadata.ownerReferences, one step at a time. Pure translation."""

import re
from typing import Final

import msgspec

from webhook.kube.objects import objects
from webhook.kube.objects.events import ObjectRef

READ: Final = {
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
"""Kinds that others make for people: only these are read to find who owns them, and the roles allow no others."""

LONGEST: Final = 317
"""Characters of an apiVersion, the longest of an owner's texts: a tenant may write any length, and they are kept."""

ACCEPT: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""The answer holds metadata alone: no template, no status."""


class _Object(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta


_PART: Final = re.compile(r"[A-Za-z0-9.-]{1,253}")
_decoder: Final = msgspec.json.Decoder(_Object)


def controller_of(metadata: objects.ObjectMeta, *, namespace: str) -> ObjectRef | None:
    """Name the controller of an object of a namespace; None where it has none, or one that is not named in full."""
    for owner in metadata.owner_references or ():
        if owner.controller:
            texts = (owner.api_version, owner.kind, owner.name, owner.uid)
            if not all(texts) or max(map(len, texts)) > LONGEST:
                return None
            return ObjectRef(owner.kind, namespace, owner.name, owner.uid, owner.api_version)
    return None


def path_of(ref: ObjectRef) -> str | None:
    """Tell where the API keeps an object of a kind that others make for people; None for any other kind."""
    group, _, version = ref.api_version.rpartition("/")
    plural = READ.get((group, ref.kind))
    if plural is None or not (_is_plain(version) and _is_plain(ref.name)):
        return None
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{base}/namespaces/{ref.namespace}/{plural}/{ref.name}"


def owner_in(body: bytes, ref: ObjectRef) -> ObjectRef | None:
    """Read the controller of an object; None where it has none, or where the name is another object's by now.

    Raises ValueError where the answer is no object.
    """
    metadata = _decoder.decode(body).metadata
    found = controller_of(metadata, namespace=ref.namespace) if metadata.uid == ref.uid else None
    return None if found is None or found == ref else found


def _is_plain(part: str) -> bool:
    """Tell whether a tenant's text can only be one part of a path."""
    return part not in (".", "..") and _PART.fullmatch(part) is not None
