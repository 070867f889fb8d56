"""Structs of objects, owners, bounds.

The fields of Kubernetes objects that Fairgate reads, as msgspec structs; the decoder skips all other fields.

Parts that the pods of one template share (selectors, affinity, tolerations, resources) stay raw JSON here, so that
constraints.py and demands.py can look them up by their bytes and parse each template once. A raw part is a view into
the request body: keep bytes(raw), never the Raw itself, after the request.

Names have the core's types from here on: calling a NewType costs 0.1 us each time.

gc=False: nothing here can form a cycle, and 50,000 pods must not slow down garbage collection.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from webhook.core.model import amounts
from webhook.core.model.pod import NO_UID
from webhook.kube.objects import bounds, keys
from webhook.kube.objects.bounds import Quantity
from webhook.kube.objects.events import ObjectRef

_T = TypeVar("_T")

ABSENT: Final = frozenset({b"", b"null"})
"""The bytes of a raw part that is absent."""
NOTHING: Final = msgspec.Raw()
"""A raw part that is absent."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An owner of an object; `controller` marks the managing one."""

    kind: str
    name: str
    api_version: str = ""
    controller: bool | None = None
    uid: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of any object."""

    name: str = ""
    generate_name: str = ""
    namespace: amounts.Namespace = amounts.Namespace("")
    uid: amounts.Uid = NO_UID
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class ContainerPort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container port; a host port allows a single pod per node."""

    host_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container or init container."""

    name: str
    resources: msgspec.Raw = NOTHING
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class Present(msgspec.Struct, frozen=True, gc=False):
    """An object of which only the presence matters."""


class VolumeClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The claim of a volume."""

    claim_name: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A volume; those that may bind the pod to a zone or node are read."""

    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: Present | None = None


class PodResourceClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An entry of spec.resourceClaims: a claim's name, or the template that it is created from."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    """A gate that keeps a pod from kube-scheduler until its owner removes it."""

    name: str = ""


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The group that a pod is scheduled with."""

    pod_group_name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's spec."""

    containers: list[Container]
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    node_name: amounts.NodeName = amounts.NodeName("")
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: msgspec.Raw = NOTHING
    affinity: msgspec.Raw = NOTHING
    tolerations: msgspec.Raw = NOTHING
    topology_spread_constraints: msgspec.Raw = NOTHING
    overhead: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_group: SchedulingGroup | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    termination_grace_period_seconds: int | None = None


class PodResourceClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The claim that was created for an entry of spec.resourceClaims."""

    name: str
    resource_claim_name: str | None = None


class ContainerRun(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A run of a container, present or over."""

    started_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """Whether a container runs or has ended; neither while it waits."""

    running: ContainerRun | None = None
    terminated: ContainerRun | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The resources and the state of a container as its kubelet reports them."""

    name: str = ""
    allocated_resources: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    restart_count: int = 0
    state: ContainerState | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's status. `allocated_resources` and `resources` are of the whole pod."""

    phase: str = ""
    reason: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    conditions: msgspec.Raw = NOTHING
    allocated_resources: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING


class Pod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus | None = None
    api_version: str = ""
    kind: str = ""


class PodGates(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The scheduling gates of a pod's spec."""

    scheduling_gates: list[SchedulingGate] | None = None


class OldPod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The metadata and gates of a pod: all that is read of the old object of an update."""

    metadata: ObjectMeta
    spec: PodGates = PodGates()


class Taint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's taint."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's spec."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's condition."""

    type: str
    status: str


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's status."""

    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[NodeCondition] | None = None


class Node(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Namespace(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A namespace."""

    metadata: ObjectMeta


class PriorityClass(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A priority class."""

    metadata: ObjectMeta
    value: int
    preemption_policy: str | None = None


UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
"""What msgspec raises for values that are no such object: its own errors are ValueErrors, as those of encodings are."""


def describe(error: Exception, *, under: str = "") -> str:
    """Return a decoding error as path and problem: `spec.containers[0].name: expected str, got int`."""
    if isinstance(error, RecursionError):
        return f"{under}: nested too deeply".removeprefix(": ")
    what, _, path = str(error).partition(" - at `$")
    where = (under + path.rstrip("`")).replace("[...]", "[]").strip(".")
    what = what.replace("`", "")
    if what[1:2].islower():  # not "JSON is malformed"
        what = what[0].lower() + what[1:]
    return f"{where}: {what}" if where else what


def read_part(decoder: "msgspec.json.Decoder[_T]", raw: bytes, *, where: str) -> _T | None:
    """Decode a raw part; None if it is absent or null. Raises ValueError with the path `where` if it is malformed."""
    if not raw or raw == b"null":
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(describe(error, under=where)) from error


# Large objects of a watch, reduced as JSON to the fields that are read, so that they decode in milliseconds.
#
# Stored objects cannot be refused. Of too many labels or annotations only those that Fairgate reads are kept; of too
# many containers only those that request devices, with the fields that are read.


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
    state: ContainerState | None = None


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


# The controller of an object by metadata.ownerReferences, one level at a time. Pure translation.


MAX_FIELD: Final = 317
"""Maximum characters of an owner's fields (apiVersion is the longest): they are stored, and tenants set the length."""

ACCEPT: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""The response has metadata only: no template, no status."""


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_PART: Final = re.compile(r"[A-Za-z0-9.-]{1,253}")
_decoder: Final = msgspec.json.Decoder(_Object)


def controller_of(metadata: ObjectMeta, *, namespace: str) -> ObjectRef | None:
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


# Files in a Secret. All other fields of the object, such as labels, stay unchanged.


_Json = dict[str, Any]


def new_secret(name: str, files: Mapping[str, bytes]) -> _Json:
    """Return a Secret of type kubernetes.io/tls, which may have other files besides certificate and key."""
    metadata = {"name": name, "labels": dict(keys.OWN_LABELS)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", **_data(files)}


def files_of(secret: _Json) -> dict[str, bytes]:
    """Return the files. Raises ValueError for data that is not base64."""
    return {name: b64decode(content, validate=True) for name, content in (secret.get("data") or {}).items()}


def with_files(secret: _Json, files: Mapping[str, bytes]) -> _Json:
    """Return the same Secret with exactly these files; its resourceVersion guards against concurrent writes."""
    return {**secret, **_data(files)}


def _data(files: Mapping[str, bytes]) -> _Json:
    return {"data": {name: b64encode(content).decode() for name, content in files.items()}}
