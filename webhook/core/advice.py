"""Room that was advised to pods on their way to the commit, so that those who come meanwhile are sent elsewhere.

A pod has no name yet when it is advised, so a piece of advice is known by what it takes and where: whoever takes just
that there redeems the oldest. Nobody is turned away for it, and it lapses soon. Nodes are ranked as if it were not
there: pods of a burst fill a node together, as they would have one by one on a node that is in use.
"""

import math
from collections import deque
from typing import Final, NamedTuple

from webhook.core.demand import Demand
from webhook.core.fleet import Fleet
from webhook.core.names import NodeName, Uid

ADVICE_SECONDS: Final = 10.0
"""How long advice holds its room: the commit follows in milliseconds, but in a burst requests queue up before it."""


_What = tuple[NodeName, Demand]


class _Piece(NamedTuple):
    lapses: float
    holder: Uid


class Advice:
    """What is advised and not taken yet; its room is off the fleet that it is given."""

    def __init__(self) -> None:
        self._pieces: dict[_What, deque[_Piece]] = {}
        self._order: deque[tuple[float, _What]] = deque()  # all that was given, redeemed or not, the oldest first
        self._given = 0

    def promises(self, node: NodeName, demand: Demand) -> bool:
        """Tell whether just this was advised to somebody."""
        return (node, demand) in self._pieces

    def give(self, fleet: Fleet, node: NodeName, demand: Demand, *, now: float) -> None:
        """Keep room for the pod that was just advised."""
        self._given += 1
        holder = Uid(f"advised-{self._given}")
        lapses = now + ADVICE_SECONDS
        self._pieces.setdefault((node, demand), deque()).append(_Piece(lapses, holder))
        self._order.append((lapses, (node, demand)))
        fleet.promise(node, demand, holder=holder)

    def redeem(self, fleet: Fleet, node: NodeName | None, demand: Demand) -> None:
        """Let go of the oldest piece that is just this: its pod takes the room now."""
        if node is None or not self._pieces:
            return
        pieces = self._pieces.get((node, demand))
        if pieces is not None:
            fleet.promise(node, demand, sign=-1, holder=pieces.popleft().holder)
            fleet.settle(node)
            if not pieces:
                del self._pieces[node, demand]

    def lapse(self, fleet: Fleet, *, now: float) -> None:
        """Let go of what nobody came for."""
        while self._order and self._order[0][0] <= now:
            _, what = self._order.popleft()
            if what in self._pieces and self._pieces[what][0].lapses <= now:
                self.redeem(fleet, *what)

    def withdraw(self, fleet: Fleet) -> bool:
        """Let go of all of it; tells whether there was any."""
        had_any = bool(self._pieces)
        self.lapse(fleet, now=math.inf)
        return had_any
