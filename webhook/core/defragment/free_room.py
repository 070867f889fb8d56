"""What is free on single nodes: how many nodes have how many devices free, which says what the largest pod may be."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.core.model.names import ResourceName
from webhook.core.placement.fleet import Fleet


class FreeRoom(NamedTuple):
    """For each resource, how many nodes have each number of pieces free; nodes without any are left out."""

    nodes: Mapping[ResourceName, Mapping[int, int]]

    def largest(self, resource: ResourceName) -> int:
        """Return the most pieces that are free on one node."""
        return max(self.nodes.get(resource, ()), default=0)


def free_room(fleet: Fleet, resources: Iterable[ResourceName], *, among: int) -> FreeRoom:
    """Return what is free on these slots."""
    found = {name: Counter(free for _, free in fleet.free_on(among, name) if free > 0) for name in resources}
    return FreeRoom({name: counts for name, counts in sorted(found.items()) if fleet.offers(name)})
