"""Where a pod should go: filter, then score.

The score is best fit on GPUs with whole-node keeping: fill the node that has the fewest GPUs left over, and touch
wholly free nodes last while no more than `keep_whole` of them are left. `_by_rank` is the seam: it alone says which
class of nodes is better for a pod. Classes come in the order (free GPUs, is wholly free, capacity), which is best fit
with partly used nodes first.
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
    ranked = [room]
    if demand.devices:
        ranked = _by_rank(fleet, demand, usable, room, keep_whole=keep_whole, spare_whole=spare_whole)
    for members in ranked:
        lowest_slots(members, count, slots)
        if len(slots) == count:
            break
    return fleet.names(slots)


def _by_rank(fleet: Fleet, demand: Demand, usable: int, room: int, *, keep_whole: int, spare_whole: bool) -> list[int]:
    """Split the nodes that have room into classes, the best class first."""
    devices = demand.devices
    resource, amount = devices[0] if len(devices) == 1 else max(devices, key=itemgetter(1))
    classes = fleet.classes(resource)
    keeps = keep_whole > 0 and (classes.whole & usable).bit_count() <= keep_whole
    ranked: list[int] = []
    kept: list[int] = []
    slots = classes.slots
    for node_class in classes.order[bisect_left(classes.order, (amount, False, 0)) :]:
        members = slots[node_class] & room
        if not members:
            continue
        if not node_class[1]:
            ranked.append(members)
        elif keeps and amount < node_class[2]:
            kept.append(members)
        elif not (spare_whole and ranked):
            ranked.append(members)
    return ranked + kept if kept and not (spare_whole and ranked) else ranked
