"""Where a pod should go: filter, then score.

The score is best fit on GPUs with whole-node keeping: fill the node that has the fewest GPUs left over, and touch
wholly free nodes last while no more than `keep_whole` of them are left. `_fill_by_rank` is the seam: it alone says
which class of nodes is better for a pod. Classes come in the order (free GPUs, is wholly free, capacity), which is best
fit with partly used nodes first.
"""

from bisect import bisect_left
from operator import itemgetter

from webhook.core.demand import Demand
from webhook.core.fleet import Fleet
from webhook.core.index import lowest_slots
from webhook.core.names import NodeName


def best_nodes(
    fleet: Fleet, demand: Demand, among: int, *, count: int, keep_whole: int = 0, spare_whole: bool = False
) -> tuple[NodeName, ...]:
    """List up to `count` nodes of a set of slots that have room, the best first; ties by slot, so by name.

    With `spare_whole` no wholly free node is listed behind another class: the list is then shorter, but whoever picks
    from it cannot open a node that the best choice would have left whole.
    """
    usable = among & fleet.open_bits
    room = fleet.with_room(demand, usable)
    if not room:
        return ()
    slots: list[int] = []
    if demand.devices:
        _fill_by_rank(slots, fleet, demand, usable, room, count=count, keep_whole=keep_whole, spare_whole=spare_whole)
    else:
        lowest_slots(room, count, slots)
    return fleet.names(slots)


def _fill_by_rank(
    slots: list[int],
    fleet: Fleet,
    demand: Demand,
    usable: int,
    room: int,
    *,
    count: int,
    keep_whole: int,
    spare_whole: bool,
) -> None:
    """Take slots from the nodes that have room, class by class, the best class first, until there are enough."""
    devices = demand.devices
    resource, amount = devices[0] if len(devices) == 1 else max(devices, key=itemgetter(1))
    classes = fleet.classes(resource)
    keeps: bool | None = None if keep_whole else False  # counted only when a wholly free node comes into question
    order, members_of = classes.order, classes.slots
    kept: list[int] = []
    for rank in range(bisect_left(order, (amount, False, 0)), len(order)):
        node_class = order[rank]
        _, is_whole, capacity = node_class
        if is_whole and spare_whole and slots:
            continue
        members = members_of[node_class] & room
        if not members:
            continue
        if is_whole and amount < capacity:
            if keeps is None:
                keeps = (classes.whole & usable).bit_count() <= keep_whole
            if keeps:
                kept.append(members)
                continue
        lowest_slots(members, count, slots)
        if len(slots) == count:
            return
    if not (spare_whole and slots):
        for members in kept:
            lowest_slots(members, count, slots)
