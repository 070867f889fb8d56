"""Where a pod should go: filter, then score.

The score is best fit on GPUs with whole-node keeping: fill the node that has the fewest GPUs left over, and touch
wholly free nodes last while no more than `keep_whole` of them are left. `_rank` is the seam: it alone says which class
of nodes (free GPUs, capacity) is better for a pod.
"""

from webhook.core.demand import Demand
from webhook.core.fleet import Fleet
from webhook.core.index import slots_of
from webhook.core.names import NodeName


def best_nodes(fleet: Fleet, demand: Demand, among: int, *, count: int, keep_whole: int = 0) -> tuple[NodeName, ...]:
    """List up to `count` nodes of a set of slots that have room, the best first; ties by slot, so by name."""
    room = fleet.with_room(demand, among & fleet.open_bits)
    if not room:
        return ()
    chosen: list[NodeName] = []
    for members in _by_rank(fleet, demand, among, room, keep_whole):
        for slot in slots_of(members):
            chosen.append(fleet.at(slot).name)
            if len(chosen) == count:
                return tuple(chosen)
    return tuple(chosen)


def _by_rank(fleet: Fleet, demand: Demand, among: int, room: int, keep_whole: int) -> list[int]:
    """Split the nodes that have room into classes, the best class first."""
    if not demand.devices:
        return [room]
    resource, amount = max(demand.devices, key=lambda device: device[1])
    classes = fleet.classes(resource)
    keeps = keep_whole > 0 and keep_whole >= sum(
        (members & among & fleet.open_bits).bit_count()
        for (free, capacity), members in classes.items()
        if free == capacity
    )
    ranked = sorted(
        (_rank(free, capacity, amount, keeps=keeps), members & room)
        for (free, capacity), members in classes.items()
        if free >= amount and members & room
    )
    return [members for _, members in ranked]


def _rank(free: int, capacity: int, amount: int, *, keeps: bool) -> tuple[bool, int, bool, int]:
    """Rank a class of nodes for a pod of so many GPUs: lower is better."""
    is_whole = free == capacity
    return (keeps and is_whole and amount < capacity, free - amount, is_whole, capacity)
