"""What nodes offer through DRA: the devices of their ResourceSlices, counted by DeviceClass.

A class selects devices by CEL. Conditions on driver and attributes are judged; any other condition is taken as met, so
a count is the most that there can be, and kube-scheduler has the last word. Devices that nodes share (network attached)
belong to no node and are not counted. A class with an extended resource has its devices under two names: one room.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from webhook.core.model.device_class import DeviceClass, age_order
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.node import Node

Value = str | int | bool


class Device(NamedTuple):
    """One device: its driver, and what else classes ask about, by qualified name (`gpu.nvidia.com/type`)."""

    driver: str
    attributes: Mapping[str, Value]


class Condition(NamedTuple):
    """One condition of a class: an attribute has this value; "" is the driver."""

    attribute: str
    value: Value

    def is_met(self, device: Device) -> bool:
        """Tell whether a device meets it."""
        if not self.attribute:
            return device.driver == self.value
        found = device.attributes.get(self.attribute)
        return type(found) is type(self.value) and found == self.value


class Slice(NamedTuple):
    """Devices of one node; only slices of a pool's newest generation hold."""

    node: NodeName
    pool: str
    generation: int
    devices: tuple[Device, ...]


class _Selected(NamedTuple):
    device_class: DeviceClass
    conditions: tuple[Condition, ...]


class DraSlices:
    """Nodes as told, with what their slices add."""

    def __init__(self) -> None:
        self._told: dict[NodeName, Node] = {}
        self._slices: dict[str, Slice] = {}
        self._of_node: dict[NodeName, dict[str, None]] = {}
        self._classes: dict[str, _Selected] = {}

    def set_node(self, node: Node) -> Node:
        """Take in a node; gives it with all that it offers."""
        self._told[node.name] = node
        return self._equipped(node)

    def remove_node(self, name: NodeName) -> None:
        """Forget a node; its slices stay until they are deleted."""
        self._told.pop(name, None)

    def set_slice(self, name: str, found: Slice | None) -> Iterable[Node]:
        """Take in a slice (None: it is gone); gives the nodes that offer something else now."""
        before = self._slices.pop(name, None)
        if before is not None:
            members = self._of_node[before.node]
            del members[name]
            if not members:
                del self._of_node[before.node]
        if found is not None:
            self._slices[name] = found
            self._of_node.setdefault(found.node, {})[name] = None
        return self._again({each.node for each in (before, found) if each is not None})

    def set_class(
        self, name: str, device_class: DeviceClass | None, conditions: tuple[Condition, ...]
    ) -> Iterable[Node]:
        """Take in a class (None: it is gone); gives the nodes that offer something else now."""
        if device_class is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = _Selected(device_class, conditions)
        return self._again(self._of_node)

    def _again(self, names: Iterable[NodeName]) -> Iterable[Node]:
        return [self._equipped(self._told[name]) for name in names if name in self._told]

    def _equipped(self, node: Node) -> Node:
        """Add what the device plugins of the node do not offer already: one name never has both on a node."""
        if node.name not in self._of_node:
            return node
        offered = {name: amount for name, amount in node.allocatable.items() if amount}
        counts = self._counts(node.name)
        return replace(
            node,
            allocatable={**node.allocatable, **counts, **offered},
            rooms={
                device_class.implicit_resource: name
                for name, device_class in self._mapped().items()
                if name not in offered and device_class.implicit_resource in counts
            },
        )

    def _mapped(self) -> dict[ResourceName, DeviceClass]:
        """Tell which class hands out each extended resource: of several the newest, as for kube-scheduler."""
        classes = sorted((each.device_class for each in self._classes.values()), key=age_order)
        return {each.extended_resource: each for each in classes if each.extended_resource is not None}

    def _counts(self, node: NodeName) -> dict[ResourceName, int]:
        slices = [self._slices[name] for name in self._of_node[node]]
        newest: dict[str, int] = {}
        for each in slices:
            newest[each.pool] = max(each.generation, newest.get(each.pool, 0))
        devices = [device for each in slices if each.generation == newest[each.pool] for device in each.devices]
        counts: dict[ResourceName, int] = {}
        for device_class, conditions in self._classes.values():
            if number := sum(all(condition.is_met(device) for condition in conditions) for device in devices):
                counts[device_class.implicit_resource] = number
        mapped = self._mapped().items()
        return counts | {
            name: counts[each.implicit_resource] for name, each in mapped if each.implicit_resource in counts
        }
