"""The controller of an object by metadata.ownerReferences, one level at a time. Pure translation."""

import re
from typing import Final

import msgspec

from webhook.kube.objects import objects
from webhook.kube.objects.events import ObjectRef

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
