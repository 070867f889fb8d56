"""Where a pod should go: filter, then score.

The score is best fit on GPUs with whole-node keeping: fill the node that has the fewest GPUs left over, and touch
wholly free nodes last while no more than `keep_whole` of them are left. `_by_rank` is the seam: it alone says which
class of nodes is better for a pod. Classes come in the order (free GPUs, is wholly free, capacity), which is best fit
with partly used nodes first.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter

from webhook.core.demand import Demand
from webhook.core.fleet import Fleet
from webhook.core.index import lowest_slots
from webhook.core.names import NodeName


def best_nodes(fleet: Fleet, demand: Demand, among: int, *, count: int, keep_whole: int = 0) -> tuple[NodeName, ...]:
    """List up to `count` nodes of a set of slots that have room, the best first; ties by slot, so by name."""
    usable = among & fleet.open_bits
    room = fleet.with_room(demand, usable)
    if not room:
        return ()
    chosen: list[NodeName] = []
    for members in _by_rank(fleet, demand, usable, room, keep_whole):
        chosen += fleet.names(lowest_slots(members, count - len(chosen)))
        if len(chosen) == count:
            break
    return tuple(chosen)


def _by_rank(fleet: Fleet, demand: Demand, usable: int, room: int, keep_whole: int) -> Iterator[int]:
    """Split the nodes that have room into classes, the best class first."""
    if not demand.devices:
        yield room
        return
    resource, amount = max(demand.devices, key=itemgetter(1)) if len(demand.devices) > 1 else demand.devices[0]
    classes = fleet.classes(resource)
    keeps = keep_whole > 0 and (classes.whole & usable).bit_count() <= keep_whole
    kept: list[int] = []
    for node_class in classes.order[bisect_left(classes.order, (amount, False, 0)) :]:
        members = classes.members(node_class) & room
        if members:
            _, is_whole, capacity = node_class
            if keeps and is_whole and amount < capacity:
                kept.append(members)
            else:
                yield members
    yield from kept
