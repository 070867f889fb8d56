"""Nodes that left or shrank recently: a node that reboots, or whose device plugin restarts, comes back.

Such a node is remembered for an hour, or until an operator has finished with it, so that a pod that only this node
could hold is not reported as one that never fits. A node counts by what it has at its best: its capacity says so while
a device is unhealthy, and for five minutes after a device plugin is gone. A kubelet that restarts without the plugin,
and a driver whose ResourceSlices are withdrawn, report nothing.
"""

from dataclasses import replace
from typing import Final

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.node import Maintenance, Node
from webhook.core.model.selector import Constraints
from webhook.core.placement.fleet import Fleet

ABSENT_SECONDS: Final = 3600
"""How long a node is expected back: a reboot takes minutes, a driver upgrade less than an hour."""

_MAX_NODES: Final = 1000
"""The largest number of nodes remembered, the latest ones."""


class AbsentNodes:
    """The resources of nodes before they left or shrank; `maintained` are the nodes that operators change."""

    def __init__(self) -> None:
        self.maintained: dict[NodeName, Maintenance] = {}
        self._fleet = Fleet()
        self._left_at: dict[NodeName, int | None] = {}  # None until the time is known; in the order of leaving

    def note(self, before: Node, now: Node | None = None) -> None:
        """Record that a node is gone, or its present state."""
        before = before.recovered
        if now is not None and now.labels == before.labels and not _shrank(now.recovered, before):
            return
        remembered = self._fleet.get(before.name)
        self._left_at.pop(before.name, None)
        self._left_at[before.name] = None
        self._fleet.set(before if remembered is None else _larger(remembered, before))
        if len(self._left_at) > _MAX_NODES:
            self._forget(next(iter(self._left_at)))

    def note_maintenance(self, node: Node) -> None:
        """Record whether an operator changes a node."""
        if node.maintenance is not None:
            self.maintained[node.name] = node.maintenance
        elif self.maintained:
            self.maintained.pop(node.name, None)

    def tick(self, now: int) -> None:
        """Forget nodes that have been absent for too long. A node is absent from the first tick after it left.

        Of nodes that are `maintained` the time does not run.
        """
        for name, left_at in list(self._left_at.items()):
            if left_at is None or name in self.maintained:
                self._left_at[name] = now
            elif left_at + ABSENT_SECONDS <= now:
                self._forget(name)

    def get(self, name: NodeName) -> Node | None:
        """Return a node as it was; None where it is not remembered."""
        return self._fleet.get(name)

    def capable(self, demand: Demand, constraints: Constraints) -> list[NodeName]:
        """Return the absent nodes that could hold the demand if they were back, and empty."""
        return self._fleet.names_of(self._fleet.with_capacity(demand, self._fleet.matching(constraints)))

    def offers(self, resource: ResourceName) -> bool:
        """Whether any absent node had this resource."""
        return self._fleet.offers(resource)

    def _forget(self, name: NodeName) -> None:
        del self._left_at[name]
        self._fleet.remove(name)


def _shrank(now: Node, before: Node) -> bool:
    return any(now.allocatable.get(name, 0) < amount for name, amount in before.allocatable.items())


def _larger(one: Node, other: Node) -> Node:
    """Return the larger amounts of two states of a node: one that fails device by device shrinks in steps."""
    names = one.allocatable.keys() | other.allocatable.keys()
    most = {name: max(one.allocatable.get(name, 0), other.allocatable.get(name, 0)) for name in names}
    devices = max(one.devices, other.devices, key=lambda devices: sum(devices.capacities))
    return replace(other, allocatable=most, devices=devices)
