"""What pods take that come with each node, such as those of DaemonSets: no end of other pods makes that room free."""

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.node import Node
from webhook.core.placement.slot_index import AmountIndexes, index_of


class StandingUse:
    """The use by node, also of nodes that are unknown, and an index of what is left beside it of a node at its best."""

    def __init__(self, used: "dict[NodeName, dict[ResourceName, int]] | None" = None) -> None:
        self.used: dict[NodeName, dict[ResourceName, int]] = {} if used is None else used
        self._left = AmountIndexes()

    def change(self, name: NodeName, demand: Demand, *, sign: int) -> None:
        """Count a pod that comes with a node, or (sign -1) count it no longer; `update` its resources afterwards."""
        used = self.used.setdefault(name, {})
        for resource, amount in demand.requests:
            used[resource] = used.get(resource, 0) + sign * amount
        if not any(used.values()):
            del self.used[name]

    def update(self, slot: int, node: Node, resource: ResourceName) -> None:
        """Update what is left of one resource of a node."""
        used = self.used.get(node.name)
        left = node.amount_at_best(resource) - (0 if used is None else used.get(resource, 0))
        self._left[resource].change(slot, 1 << slot, left)

    def leaves(self, demand: Demand, among: int) -> int:
        """Return those of the slots where as much as a demand asks for is left, resource by resource."""
        for resource, amount in demand.requests:
            index = self._left.get(resource) or index_of(self._left, resource)
            among &= 0 if index is None else index.at_least(amount)
        return among
