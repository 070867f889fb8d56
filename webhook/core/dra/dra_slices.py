"""Devices of nodes from ResourceSlices (DRA), counted by DeviceClass.

A class selects devices by CEL. Conditions on driver and attributes are evaluated; any other condition counts as met, so
a count is an upper bound and kube-scheduler decides. Devices shared between nodes (network attached) belong to no node
and are not counted. The devices of a class with an extended resource have two names but one capacity.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from webhook.core.dra.device_parts import SizedDevice
from webhook.core.model.device_class import DeviceClass, age_order
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.node import Node

Value = str | int | bool


class SliceDevice(NamedTuple):
    """One device: its driver, and the attributes that classes select by, by qualified name (`gpu.nvidia.com/type`)."""

    driver: str
    attributes: Mapping[str, Value]


class ClassCondition(NamedTuple):
    """One condition of a class: an attribute has this value; the attribute "" is the driver."""

    attribute: str
    value: Value

    def is_met(self, device: SliceDevice) -> bool:
        """Whether a device meets the condition."""
        if not self.attribute:
            return device.driver == self.value
        found = device.attributes.get(self.attribute)
        return type(found) is type(self.value) and found == self.value


class Slice(NamedTuple):
    """Devices of one node; only slices of a pool's newest generation count. `sized` are those that claims may share."""

    node: NodeName
    pool: str
    generation: int
    devices: tuple[SliceDevice, ...]
    sized: tuple[SizedDevice, ...] = ()


class _ClassSelector(NamedTuple):
    device_class: DeviceClass
    conditions: tuple[ClassCondition, ...]


class DraSlices:
    """Nodes as reported by the API, plus the devices of their slices."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, Node] = {}
        self._slices: dict[str, Slice] = {}
        self._slices_of_node: dict[NodeName, dict[str, None]] = {}
        self._classes: dict[str, _ClassSelector] = {}

    def set_node(self, node: Node) -> Node:
        """Set a node; return it with all its devices."""
        self._nodes[node.name] = node
        return self._with_devices(node)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node; its slices stay until they are deleted."""
        self._nodes.pop(name, None)

    def set_slice(self, name: str, found: Slice | None) -> Iterable[Node]:
        """Set or remove (None) a slice; return the nodes whose devices changed."""
        before = self._slices.pop(name, None)
        if before is not None:
            members = self._slices_of_node[before.node]
            del members[name]
            if not members:
                del self._slices_of_node[before.node]
        if found is not None:
            self._slices[name] = found
            self._slices_of_node.setdefault(found.node, {})[name] = None
        return self._updated({each.node for each in (before, found) if each is not None})

    def set_class(
        self, name: str, device_class: DeviceClass | None, conditions: tuple[ClassCondition, ...]
    ) -> Iterable[Node]:
        """Set or remove (None) a class; return the nodes whose devices may have changed."""
        if device_class is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = _ClassSelector(device_class, conditions)
        return self._updated(self._slices_of_node)

    def _updated(self, names: Iterable[NodeName]) -> Iterable[Node]:
        return [self._with_devices(self._nodes[name]) for name in names if name in self._nodes]

    def _with_devices(self, node: Node) -> Node:
        """Add the devices that the node's device plugins do not have already: no name has both sources."""
        if node.name not in self._slices_of_node:
            return node
        offered = {name: amount for name, amount in node.allocatable.items() if amount}
        counts = self._counts(node.name)
        allocatable = {**node.allocatable, **counts, **offered}
        return replace(
            node,
            allocatable=allocatable,
            at_best={name: amount for name, amount in node.at_best.items() if amount > allocatable.get(name, 0)},
            alias_of={
                device_class.implicit_resource: name
                for name, device_class in self._class_of_resource().items()
                if name not in offered and device_class.implicit_resource in counts
            },
        )

    def _class_of_resource(self) -> dict[ResourceName, DeviceClass]:
        """Return the class behind each extended resource: of several the newest, as in kube-scheduler."""
        classes = sorted((each.device_class for each in self._classes.values()), key=age_order)
        return {each.extended_resource: each for each in classes if each.extended_resource is not None}

    def _counts(self, node: NodeName) -> dict[ResourceName, int]:
        slices = [self._slices[name] for name in self._slices_of_node[node]]
        newest: dict[str, int] = {}
        for each in slices:
            newest[each.pool] = max(each.generation, newest.get(each.pool, 0))
        devices = [device for each in slices if each.generation == newest[each.pool] for device in each.devices]
        counts: dict[ResourceName, int] = {}
        for device_class, conditions in self._classes.values():
            if number := sum(all(condition.is_met(device) for condition in conditions) for device in devices):
                counts[device_class.implicit_resource] = number
        class_of_resource = self._class_of_resource().items()
        return counts | {
            name: counts[each.implicit_resource] for name, each in class_of_resource if each.implicit_resource in counts
        }
