"""Nodes, kept places, maintenance, quotas, autoscalers.

Which autoscalers a cluster has, by what the API server serves and by what they write about themselves.

A leftover or another product's kind of the same name must not count: Karpenter has two kinds of one version, both
cluster-scoped, and Cluster Autoscaler rewrites its status every few seconds while it runs. Sources:
sigs.k8s.io/karpenter/pkg/apis/crds; cluster-autoscaler/clusterstate/utils/status.go.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.amounts import GpuModel, Namespace, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.constraints import AMD_PARTITIONING, Effect, NodeTerm, Taint
from webhook.core.model.node import (
    NO_AMOUNTS,
    NO_DEVICES,
    NO_MODEL,
    NO_POD,
    Autoscaler,
    Devices,
    KeptPlace,
    Maintenance,
    Node,
)
from webhook.core.model.pod import NamespaceFacts, PriorityTriple
from webhook.core.quota.charges import Quota
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.bounds import Quantity, exact
from webhook.kube.pod.constraints import node_terms
from webhook.kube.pod.pods import unix_seconds

KARPENTER_PATHS: Final = ("/apis/karpenter.sh/v1", "/apis/karpenter.sh/v1beta1")
"""Where Karpenter's kinds are served, the newest version first."""

STATUS_NAMESPACE: Final = Namespace("kube-system")
STATUS_NAME: Final = "cluster-autoscaler-status"
STATUS_PATH: Final = f"/api/v1/namespaces/{STATUS_NAMESPACE}/configmaps/{STATUS_NAME}"
"""The ConfigMap that Cluster Autoscaler keeps up to date."""

STOPPED_SECONDS: Final = 3600.0
"""A status that is older was left by a Cluster Autoscaler that no longer runs. A restart takes minutes."""

UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"
_UPDATED_FORMAT: Final = "%Y-%m-%d %H:%M:%S %z"
_GROUP: Final = "karpenter.sh"
_KINDS: Final = {"nodepools": "NodePool", "nodeclaims": "NodeClaim"}


class Status(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap, as far as it may be the status of Cluster Autoscaler."""

    metadata: objects.ObjectMeta


class _Names(msgspec.Struct, frozen=True, gc=False):
    plural: str = ""
    kind: str = ""


class _DefinitionSpec(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    names: _Names = _Names()
    scope: str = ""


class Definition(msgspec.Struct, frozen=True, gc=False):
    """A CustomResourceDefinition, as far as it says which kind it is of."""

    metadata: objects.ObjectMeta
    spec: _DefinitionSpec = _DefinitionSpec()


class _Resource(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    kind: str = ""
    namespaced: bool = True


class _Served(msgspec.Struct, frozen=True, gc=False):
    resources: list[_Resource] | None = None


class _Api(NamedTuple):
    version: str
    kind: str
    plural: str


API: Final = {
    Definition: _Api(keys.EXTENSIONS_API, "CustomResourceDefinition", "customresourcedefinitions"),
    Status: _Api(keys.CORE_API, "ConfigMap", "configmaps"),
}
"""How the API names these kinds."""

_served: Final = msgspec.json.Decoder(_Served)
_status: Final = msgspec.json.Decoder(Status)


def serves_karpenter(body: bytes) -> bool:
    """Whether the API's list of one version's resources has Karpenter's. Raises ValueError if it is no such list."""
    found = {each.name: each.kind for each in _served.decode(body).resources or () if not each.namespaced}
    return _KINDS.items() <= found.items()


def is_running(body: bytes, *, now: float) -> bool:
    """Whether a ConfigMap shows that Cluster Autoscaler runs. Raises ValueError if it is no object."""
    updated = updated_at(_status.decode(body))
    return updated is not None and now - updated < STOPPED_SECONDS


def updated_at(status: Status) -> float | None:
    """Return when Cluster Autoscaler wrote its status, in Unix seconds; None if something else wrote it."""
    text = (status.metadata.annotations or {}).get(UPDATED, "")
    date, _, rest = text.partition(" ")
    clock, _, zone = rest.partition(" ")
    try:
        at = datetime.strptime(f"{date} {clock.partition('.')[0]} {zone.partition(' ')[0]}", _UPDATED_FORMAT)
    except ValueError:
        return None
    return at.timestamp()


def found_in(saved: Iterable[Definition | Status]) -> frozenset[Autoscaler]:
    """Return the autoscalers of a cluster by its objects: time has passed since they were saved."""
    found, kinds = set(), {}
    for each in saved:
        if isinstance(each, Status):
            if each.metadata.name == STATUS_NAME and updated_at(each) is not None:
                found.add(Autoscaler.CLUSTER_AUTOSCALER)
        elif each.spec.group == _GROUP and each.spec.scope == "Cluster":
            kinds[each.spec.names.plural] = each.spec.names.kind
    if _KINDS.items() <= kinds.items():
        found.add(Autoscaler.KARPENTER)
    return frozenset(found)


def marks_of(autoscaler: Autoscaler, *, at: float) -> tuple[Definition | Status, ...]:
    """Return objects by which `found_in` finds an autoscaler at a time in Unix seconds."""
    match autoscaler:
        case Autoscaler.KARPENTER:
            return tuple(
                Definition(
                    objects.ObjectMeta(name=f"{plural}.{_GROUP}"),
                    _DefinitionSpec(_GROUP, _Names(plural, kind), "Cluster"),
                )
                for plural, kind in _KINDS.items()
            )
        case Autoscaler.CLUSTER_AUTOSCALER:
            updated = {UPDATED: datetime.fromtimestamp(at, UTC).strftime(f"{_UPDATED_FORMAT} UTC")}
            return (Status(objects.ObjectMeta(name=STATUS_NAME, namespace=STATUS_NAMESPACE, annotations=updated)),)


def objects_of(autoscalers: Iterable[Autoscaler], *, at: float) -> list[Mapping[str, Any]]:
    """Return the marks of autoscalers as the API would."""
    marks = (mark for each in autoscalers for mark in marks_of(each, at=at))
    return [{"apiVersion": API[type(mark)].version, "kind": API[type(mark)].kind, **_plain(mark)} for mark in marks]


def _plain(mark: Definition | Status) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(mark)
    return found | {"metadata": {key: value for key, value in found["metadata"].items() if value}}


# The places that a held node keeps for pods to come, as the evictor writes them into its annotation of the hold.


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place in the annotation."""

    key: str
    name: str
    team: TeamName
    requests: dict[ResourceName, int]
    replaces: Uid = NO_POD


class _Note(msgspec.Struct, frozen=True):
    places: tuple[Place, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Note)


def kept_places(metadata: objects.ObjectMeta) -> tuple[KeptPlace, ...]:
    """Return the places that a node keeps; none where it has no hold, or the annotation has another format."""
    text = (metadata.annotations or {}).get(keys.HOLD)
    if text is None:
        return ()
    try:
        return to_places(_decoder.decode(text).places)
    except msgspec.MsgspecError:
        return ()


def to_places(written: Iterable[Place]) -> tuple[KeptPlace, ...]:
    """Return places from what is written of them."""
    return tuple(
        KeptPlace(each.key, each.name, each.team, tuple(each.requests.items()), each.replaces) for each in written
    )


def to_written(places: Iterable[KeptPlace]) -> tuple[Place, ...]:
    """Return what is written of places."""
    return tuple(Place(each.key, each.name, each.team, dict(each.requests), each.replaces) for each in places)


# What an operator changes on a node at present, by the labels and taints that it sets meanwhile.
#
# NVIDIA's MIG manager (https://github.com/NVIDIA/mig-parted, pkg/mig/reconfigure) and driver upgrades
# (https://github.com/NVIDIA/k8s-operator-libs, pkg/upgrade), AMD's device config manager
# (https://github.com/ROCm/gpu-operator, docs/dcm). A node whose upgrade is only due, or has failed, works as its
# kubelet says.


MIG_STATE: Final = "nvidia.com/mig.config.state"
DRIVER_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
_PARTITIONING: Final = frozenset({"pending", "rebooting"})
_UPGRADING: Final = frozenset(
    f"{step}-required"
    for step in (
        *("node-maintenance", "cordon", "wait-for-jobs", "pod-deletion", "drain"),
        *("pod-restart", "validation", "uncordon"),
    )
)


def maintenance_of(labels: Mapping[str, str], taints: Iterable[Taint]) -> Maintenance | None:
    """Return what is changed on a node; None for nothing."""
    if labels.get(MIG_STATE) in _PARTITIONING or any(taint.key == AMD_PARTITIONING for taint in taints):
        return Maintenance.PARTITIONING
    return Maintenance.DRIVER_UPGRADE if labels.get(DRIVER_STATE) in _UPGRADING else None


# From a Kubernetes Node, Namespace or PriorityClass to core values.


_NO_SPEC: Final = objects.NodeSpec()
_NO_STATUS: Final = objects.NodeStatus()
_MAX_DEVICES: Final = 256
_MAX_DIGITS: Final = 4
_NATIVE: Final = "kubernetes.io/"
_DEVICES: Final = frozenset({keys.GPU_MEMORY, keys.GPU_COUNT})
_EFFECTS: Final = {effect.value: effect for effect in Effect}


def to_node(node: objects.Node) -> Node:
    """Translate a node.

    A node without a Ready condition counts as ready, as for kube-scheduler, which reads only the taints: a new node
    has the not-ready taint. Raises ValueError if its amounts cannot be parsed.
    """
    spec, status = node.spec or _NO_SPEC, node.status or _NO_STATUS
    # the nodes of a cluster have the same labels: without interning, those of 5,000 nodes take 20 MB
    labels = {intern(key): intern(value) for key, value in (node.metadata.labels or {}).items()}
    # the API server also defaults allocatable to capacity
    allocatable = _amounts(status.capacity if status.allocatable is None else status.allocatable, "allocatable")
    at_best = NO_AMOUNTS if status.allocatable is None else _at_best(status.capacity, status.allocatable, allocatable)
    devices = _devices(allocatable, labels)
    model_label = next((key for key in keys.GPU_MODEL_LABELS if labels.get(key)), "")
    taints = tuple(
        Taint(taint.key, _EFFECTS[taint.effect], taint.value or "")
        for taint in spec.taints or ()
        if taint.effect in _EFFECTS
    )
    return Node(
        name=NodeName(node.metadata.name),
        allocatable=allocatable,
        labels=labels,
        taints=taints,
        model=GpuModel(labels[model_label]) if model_label else NO_MODEL,
        model_label=model_label,
        is_ready=all(c.status == "True" for c in status.conditions or () if c.type == "Ready"),
        is_cordoned=bool(spec.unschedulable),
        maintenance=maintenance_of(labels, taints),
        devices=devices,
        at_best=at_best,
        devices_at_best=_devices({**allocatable, **at_best}, labels) if _DEVICES & at_best.keys() else NO_DEVICES,
        created=unix_seconds(node.metadata.creation_timestamp or ""),
        kept=kept_places(node.metadata),
    )


def to_namespace(namespace: objects.Namespace) -> NamespaceFacts:
    """Translate a namespace."""
    metadata = namespace.metadata
    return NamespaceFacts(Namespace(metadata.name), metadata.labels or {}, metadata.annotations or {})


def to_priority(priority_class: objects.PriorityClass) -> PriorityTriple:
    """Return the three pod fields that a priority class sets."""
    name, value = priority_class.metadata.name, priority_class.value
    if priority_class.preemption_policy is None:
        return PriorityTriple(name, value)
    return PriorityTriple(name, value, priority_class.preemption_policy)


def _devices(allocatable: Mapping[ResourceName, int], labels: Mapping[str, str]) -> Devices:
    """Return the sizes of a node's devices from gpushare's total, which its device plugin reports for equal devices."""
    memory = allocatable.get(ResourceName(keys.GPU_MEMORY), 0)
    if not memory:
        return NO_DEVICES
    labeled = (labels[key] for key in keys.GPU_COUNT_LABELS if labels.get(key, "").isdecimal())
    number = allocatable.get(ResourceName(keys.GPU_COUNT), 0) or int(next(labeled, "1")[:_MAX_DIGITS])
    if not 1 <= number <= _MAX_DEVICES:
        number = 1  # unknown: one device with all memory, as kube-scheduler sees it
    return Devices(ResourceName(keys.GPU_MEMORY), (memory // number,) * number)


def _at_best(
    capacity: Mapping[str, bounds.Quantity] | None,
    offered: Mapping[str, bounds.Quantity],
    allocatable: Mapping[ResourceName, int],
) -> Mapping[ResourceName, int]:
    """Return the extended resources of which a node has more than it offers now.

    Kubelet keeps unhealthy devices, and for five minutes those of a plugin that is gone, in capacity alone
    (pkg/kubelet/cm/devicemanager, GetCapacity). Capacity of cpu, memory and storage includes what the system reserves.
    """
    more = {
        name: value
        for name, value in (capacity or {}).items()
        if "/" in name and value != offered.get(name) and not name.startswith(_NATIVE)
    }
    if not more:
        return NO_AMOUNTS
    found = _amounts(more, "capacity")
    return {name: amount for name, amount in found.items() if amount > allocatable.get(name, 0)}


def _amounts(listed: Mapping[str, bounds.Quantity] | None, field: str) -> dict[ResourceName, int]:
    amounts: dict[ResourceName, int] = {}
    for name, value in (listed or {}).items():
        try:
            amounts[ResourceName(name)] = max(0, bounds.amount(name, value))
        except ValueError as error:
            raise ValueError(f"status.{field}.{name}: {error}") from error
    return amounts


# Decoding of ResourceQuotas to core Quotas, which are compared with new pods.


PATH: Final = "/api/v1/resourcequotas"


class _QuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class _QuotaStatus(msgspec.Struct, frozen=True):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota."""

    metadata: objects.ObjectMeta
    spec: _QuotaSpec = _QuotaSpec()
    status: _QuotaStatus = _QuotaStatus()


class _List(msgspec.Struct, frozen=True):
    items: list[ResourceQuota] | None = None


_list_decoder: Final = msgspec.json.Decoder(_List)


def to_quota(found: ResourceQuota) -> Quota | None:
    """Translate a quota; None if it applies to some pods only (scopes), or has no status yet.

    kube-apiserver also compares with `status.hard` and `status.used`. Raises ValueError for malformed amounts.
    """
    if found.spec.scopes or found.spec.scope_selector:
        return None
    hard, used = found.status.hard or {}, found.status.used or {}
    if not hard:
        return None
    return Quota(
        found.metadata.name,
        {name: exact(amount) for name, amount in hard.items()},
        {name: exact(amount) for name, amount in used.items()},
    )


def decode_quotas(body: bytes) -> list[Quota]:
    """Decode a list of quotas. Raises ValueError if the body is not one."""
    found = _list_decoder.decode(body).items or ()
    return [quota for each in found if (quota := to_quota(each)) is not None]


# PersistentVolumes: on which nodes the volume of a claim is usable.
#
# A volume names its claim, so claims are not read: tenants write those. What is not bound narrows nothing.


KIND: Final = "PersistentVolume"
VOLUMES: Final = "persistentvolumes"


class _Claim(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""


class _Affinity(msgspec.Struct, frozen=True, gc=False):
    required: msgspec.Raw = objects.NOTHING


class _VolumeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_ref: _Claim | None = None
    node_affinity: _Affinity | None = None


class _VolumeStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PersistentVolume(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolume."""

    metadata: objects.ObjectMeta
    spec: _VolumeSpec = _VolumeSpec()
    status: _VolumeStatus = _VolumeStatus()


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
