"""PersistentVolumes: on which nodes the volume of a claim is usable.

A volume names its claim, so claims are not read: tenants write those. What is not bound narrows nothing.
"""

from typing import Final, NamedTuple

import msgspec

from webhook.core.model.selector import NodeTerm
from webhook.kube.objects import objects
from webhook.kube.pod.constraints import node_terms

KIND: Final = "PersistentVolume"
VOLUMES: Final = "persistentvolumes"


class _Claim(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""


class _Affinity(msgspec.Struct, frozen=True, gc=False):
    required: msgspec.Raw = objects.NOTHING


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_ref: _Claim | None = None
    node_affinity: _Affinity | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PersistentVolume(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolume."""

    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class BoundVolume(NamedTuple):
    """A volume that is bound to a claim (namespace/name), and usable on nodes that meet one of the terms."""

    claim: str
    name: str
    terms: tuple[NodeTerm, ...]


def to_volume(found: PersistentVolume) -> BoundVolume | None:
    """Translate a volume; None for one that is not bound, or usable everywhere. Raises ValueError if malformed."""
    affinity, claim = found.spec.node_affinity, found.spec.claim_ref
    if found.status.phase != "Bound" or affinity is None or claim is None:
        return None
    terms = node_terms(bytes(affinity.required))
    return BoundVolume(f"{claim.namespace}/{claim.name}", found.metadata.name, terms) if terms else None
