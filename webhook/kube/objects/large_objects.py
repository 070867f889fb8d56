"""Large objects of a watch, reduced as JSON to the fields that are read, so that they decode in milliseconds.

Stored objects cannot be refused. Of too many labels or annotations only those that Fairgate reads are kept; of too many
containers only those that request devices, with the fields that are read.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook.kube.objects import bounds, keys, objects

READ_LABELS: Final = (*keys.GUARDED_LABELS, *keys.GANG_LABELS)

_Parts = dict[str, msgspec.Raw]


def _only(name: str, listed: Iterable[str]) -> "msgspec.json.Decoder[Any]":
    """Return a decoder that skips all other keys."""
    fields = [(f"key_{n}", str, msgspec.field(default="", name=key)) for n, key in enumerate(listed)]
    return msgspec.json.Decoder(msgspec.defstruct(name, fields, omit_defaults=True))


class _ContainerStatus(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    name: str = ""
    allocated_resources: msgspec.Raw = msgspec.Raw(b"null")
    resources: msgspec.Raw = msgspec.Raw(b"null")
    restart_count: int = 0
    state: objects.ContainerState | None = None


class _Container(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    name: str = ""
    resources: msgspec.Raw = msgspec.Raw(b"{}")
    restart_policy: str | None = None


_parts: Final = msgspec.json.Decoder(_Parts)
_labels: Final = _only("Labels", READ_LABELS)
_annotations: Final = _only("Annotations", keys.STORED_ANNOTATIONS)
_containers: Final = msgspec.json.Decoder(list[_Container] | None)
_statuses: Final = msgspec.json.Decoder(list[_ContainerStatus] | None)
_encoder: Final = msgspec.json.Encoder()
_BOUND_VOLUME: Final = msgspec.Raw(b'[{"ephemeral":{}}]')


def without_large_parts(raw: bytes) -> bytes:
    """Return an object without its large parts.

    Raises msgspec.DecodeError if it is not an object, or if a counted part is longer than admission allows.
    """
    top = _parts.decode(raw)
    if "metadata" in top:
        top["metadata"] = _metadata(bytes(top["metadata"]))
    if "spec" in top:
        top["spec"] = _spec(bytes(top["spec"]))
    if "status" in top:
        top["status"] = _status(bytes(top["status"]))
    return _encoder.encode(top)


def _metadata(raw: bytes) -> msgspec.Raw:
    found = _parts.decode(raw)
    found.pop("managedFields", None)
    for name, decoder in (("labels", _labels), ("annotations", _annotations)):
        if _is_long(found.get(name)):
            found[name] = _encoded(decoder.decode(found[name]))
    if _is_long(found.get("ownerReferences")):
        del found["ownerReferences"]
    return _encoded(found)


def _spec(raw: bytes) -> msgspec.Raw:
    found = _parts.decode(raw)
    if _is_long(found.get("volumes")):
        found["volumes"] = _BOUND_VOLUME
    if _is_long(found.get("resourceClaims")):
        raise msgspec.ValidationError("spec.resourceClaims: longer than in any admitted pod")
    for name in ("containers", "initContainers"):
        if _is_long(found.get(name)):
            listed = _containers.decode(found[name]) or []
            if len(listed) > bounds.CONTAINERS:
                listed = [each for each in listed if b"/" in bytes(each.resources)]
            if any(_is_long(each.resources) for each in listed):
                raise msgspec.ValidationError(f"spec.{name}: resources are longer than in any admitted pod")
            found[name] = _encoded(listed)
    return _encoded(found)


def _status(raw: bytes) -> msgspec.Raw:
    """Return a status without long lists: what kubelet says of so many containers is not compared with their spec."""
    found = _parts.decode(raw) if raw.startswith(b"{") else {}
    for name in ("containerStatuses", "initContainerStatuses"):
        if _is_long(found.get(name)):
            listed = _statuses.decode(found[name]) or []
            found[name] = _encoded(listed if len(listed) <= bounds.CONTAINERS else None)
    return _encoded(found)


def _is_long(raw: msgspec.Raw | None) -> bool:
    return raw is not None and len(bytes(raw)) > bounds.LABEL_BYTES


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(value))
