"""From a Kubernetes Node, Namespace or PriorityClass to core values."""

from collections.abc import Mapping
from sys import intern
from typing import Final

from webhook.core.model.names import GpuModel, Namespace, NodeName, ResourceName
from webhook.core.model.node import NO_AMOUNTS, NO_DEVICES, NO_MODEL, Devices, Node
from webhook.core.model.pod import NamespaceFacts, PriorityTriple
from webhook.core.model.selector import Effect, Taint
from webhook.kube.nodes.maintenance import maintenance_of
from webhook.kube.objects import keys, objects, quantity
from webhook.kube.pod.pods import unix_seconds

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
    capacity: Mapping[str, quantity.Quantity] | None,
    offered: Mapping[str, quantity.Quantity],
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


def _amounts(listed: Mapping[str, quantity.Quantity] | None, field: str) -> dict[ResourceName, int]:
    amounts: dict[ResourceName, int] = {}
    for name, value in (listed or {}).items():
        try:
            amounts[ResourceName(name)] = max(0, quantity.amount(name, value))
        except ValueError as error:
            raise ValueError(f"status.{field}.{name}: {error}") from error
    return amounts
