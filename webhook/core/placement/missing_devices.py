"""The devices that nodes have and do not offer now: one is unhealthy, or their plugin restarts.

Only nodes that offer fewer devices than they have are in these indexes, with what they have at their best.
"""

from collections.abc import Sequence

from webhook.core.model.demand import PerDevice
from webhook.core.model.names import ResourceName
from webhook.core.model.node import Node
from webhook.core.placement.device_slots import DeviceIndex
from webhook.core.placement.slot_index import AmountIndex


class MissingDevices:
    """What nodes have at their best, by slot."""

    def __init__(self) -> None:
        self._amounts: dict[ResourceName, AmountIndex] = {}
        self._devices = DeviceIndex()

    def __bool__(self) -> bool:
        """Whether any node has ever offered less than it had."""
        return bool(self._amounts)

    def change(self, slot: int, before: Node | None, node: Node) -> None:
        """Update a slot from what its node was before, and is now."""
        for resource in node.at_best.keys() | (before.at_best.keys() if before else frozenset()):
            index = self._amounts.get(resource)
            if index is None:
                index = self._amounts[resource] = AmountIndex()
            index.change(slot, 1 << slot, node.at_best.get(resource, 0))
        self._devices.change(slot, node.devices_at_best, list(node.devices_at_best.capacities))

    def at_least(self, resource: ResourceName, amount: int) -> int:
        """Return the slots that have this amount of a resource at their best."""
        index = self._amounts.get(resource)
        return 0 if index is None else index.at_least(amount)

    def most(self, resource: ResourceName, slots: int) -> int:
        """Return the largest amount of a resource that one of the slots has at its best."""
        index = self._amounts.get(resource)
        return 0 if index is None else index.most(slots)

    def held_at(self, slots: Sequence[int], resource: ResourceName) -> list[int]:
        """Return the amounts of a resource that some slots have at their best."""
        index = self._amounts.get(resource)
        return [0] * len(slots) if index is None else index.held_at(slots)

    def with_capacity(self, request: PerDevice) -> int:
        """Return the slots that would have room on single devices at their best."""
        return self._devices.with_capacity(request)
