"""The nodes that back-fill leaves alone for an entry that waits for room which reclaim cannot take back for it.

An entry that would only borrow may not have others evicted. Without kept nodes, smaller entries would take every GPU
that comes free before enough of them are free on one node.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import NodeName


class KeepableNode(NamedTuple):
    """A node where the entry may run: GPU units that are free now, and those that are once all pods there ended."""

    name: NodeName
    free: Units
    size: Units


def kept_nodes(
    pods: Sequence[Units], rooms: Iterable[KeepableNode], *, before: frozenset[NodeName] = frozenset()
) -> frozenset[NodeName]:
    """Return the nodes to keep for pods of these sizes; none if the nodes together are too small.

    Each pod, the largest first, gets the node where the least is missing; then the smaller node, then the first by
    name. Nodes that were kept `before` are kept as long as the pods would fit there, so that room accumulates in one
    place.
    """
    all_rooms = tuple(rooms)
    return _chosen(pods, [room for room in all_rooms if room.name in before]) or _chosen(pods, all_rooms)


def _chosen(pods: Sequence[Units], rooms: Iterable[KeepableNode]) -> frozenset[NodeName]:
    left = {room.name: room for room in rooms}
    chosen = set()
    for gpus, count in sorted(Counter(pods).items(), reverse=True):
        by_cost = [(_cost(room, gpus), room) for room in left.values() if room.size >= gpus]
        heapify(by_cost)
        for _ in range(count):
            if not by_cost:
                return frozenset()
            best = by_cost[0][1]
            chosen.add(best.name)
            rest = left[best.name] = KeepableNode(best.name, best.free - gpus, best.size - gpus)
            if rest.size >= gpus:
                heapreplace(by_cost, (_cost(rest, gpus), rest))
            else:
                heappop(by_cost)
    return frozenset(chosen)


def _cost(room: KeepableNode, gpus: Units) -> tuple[Units, Units, NodeName]:
    return max(0, gpus - room.free), room.size, room.name
