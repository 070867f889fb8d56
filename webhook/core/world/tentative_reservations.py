"""Room that was advised to pods on their way to the commit, so that those who come meanwhile are sent elsewhere.

A pod has no name yet when it is advised, so a piece of advice is known by what it takes and where: whoever takes just
that there redeems the oldest of its own controller, or the oldest. Nobody is turned away for it, and it lapses soon.
Nodes are ranked as if it were not there: pods of a burst fill a node together, as they would have one by one on a node
that is in use. Where its like are counted, an advised pod counts.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.pod import Owner, Pod, Resident
from webhook.core.model.topology import AffinityRule
from webhook.core.peers.pod_counts import PlacedPod, PodCounts
from webhook.core.placement.fleet import Fleet

TENTATIVE_SECONDS: Final = 10.0
"""How long advice holds its room: the commit follows in milliseconds, but in a burst requests queue up before it."""


_What = tuple[NodeName, Demand]


class _Piece(NamedTuple):
    """What is kept of an advised pod: not what its user may have written at length."""

    lapses: float
    holder: Uid
    namespace: Namespace
    owner: Owner | None
    labels: Mapping[str, str]
    anti_affinity_rules: tuple[AffinityRule, ...]

    def is_like(self, pod: Pod | Resident) -> bool:
        """Tell whether a pod comes from where the advised one did."""
        return self.owner == pod.owner and self.namespace == pod.namespace


class TentativeReservations:
    """What is advised and not taken yet; its room is off the fleet that it is given."""

    def __init__(self, pod_counts: PodCounts | None = None) -> None:
        self._siblings = pod_counts or PodCounts()
        self._siblings.sources.append(self.seated)
        self._pieces: dict[_What, deque[_Piece]] = {}
        self._order: deque[tuple[float, _What]] = deque()  # all that was given, redeemed or not, the oldest first
        self._given = 0

    def promises(self, node: NodeName, demand: Demand) -> bool:
        """Tell whether just this was advised to somebody."""
        return (node, demand) in self._pieces

    def give(self, fleet: Fleet, node: NodeName, pod: Pod, *, now: float) -> None:
        """Keep room for the pod that was just advised."""
        demand = pod.demand
        self._given += 1
        holder = Uid(f"advised-{self._given}")
        lapses = now + TENTATIVE_SECONDS
        piece = _Piece(lapses, holder, pod.namespace, pod.owner, pod.labels, pod.anti_affinity_rules)
        self._pieces.setdefault((node, demand), deque()).append(piece)
        self._order.append((lapses, (node, demand)))
        self._siblings.change(piece, node, 1)
        fleet.promise(node, demand, holder=holder)

    def consume(self, fleet: Fleet, node: NodeName | None, pod: Pod | Resident) -> None:
        """Let go of a piece that is just this: its pod takes the room now."""
        if node is None or not self._pieces:
            return
        pieces = self._pieces.get((node, pod.demand))
        if pieces is not None:
            self._let_go(fleet, node, pod.demand, next((piece for piece in pieces if piece.is_like(pod)), pieces[0]))

    def expire(self, fleet: Fleet, *, now: float) -> None:
        """Let go of what nobody came for."""
        while self._order and self._order[0][0] <= now:
            _, what = self._order.popleft()
            if what in self._pieces and self._pieces[what][0].lapses <= now:
                self._let_go(fleet, *what, self._pieces[what][0])

    def withdraw(self, fleet: Fleet) -> bool:
        """Let go of all of it; tells whether there was any."""
        had_any = bool(self._pieces)
        self.expire(fleet, now=math.inf)
        return had_any

    def seated(self, namespace: Namespace) -> Iterator[PlacedPod]:
        """List the advised pods of a namespace."""
        for (node, _), pieces in self._pieces.items():
            for piece in pieces:
                if piece.namespace == namespace:
                    yield PlacedPod(piece, node)

    def _let_go(self, fleet: Fleet, node: NodeName, demand: Demand, piece: _Piece) -> None:
        pieces = self._pieces[node, demand]
        pieces.remove(piece)
        if not pieces:
            del self._pieces[node, demand]
        fleet.promise(node, demand, sign=-1, holder=piece.holder)
        fleet.settle(node)
        self._siblings.change(piece, node, -1)
