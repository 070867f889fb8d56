"""The rules of one team's ledger object: the charges in flight, which no watched pod proves yet.

The object lists the charges that were allowed and whose pods were not seen in the cluster yet. A team's usage is the
sum of the watched pods and of the charges in flight whose pods were not seen. That sum is exact only if the watch is
not older than the last charge removed from the object. So the object states up to which resourceVersion charges were
folded into the pods, and a replica may commit only if its watch has reached that version.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.decision import Charge, Decision
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.tier import Tier
from webhook.core.quota.ledger_moves import NO_MOVES, Moves


class InFlightCharge(NamedTuple):
    """An allowed pod: its charge, and the node whose room it takes where one was chosen.

    Or a running pod that is promoted: charged as guaranteed while its label still says preemptible. Or a pod deleted by
    force: with `lingers`, the seconds for which its node may still run it. Or room that is kept for a pod of a gang,
    for at most `lingers` seconds: `until` is when that ends, in seconds of Unix time. Or, with `takes_back`, a pod that
    keeps its gate until reclaim has taken back its room.
    """

    pod: Resident
    charge: Charge
    node: NodeName | None
    lingers: int = 0
    until: int = 0
    takes_back: bool = False

    @property
    def is_left(self) -> bool:
        """Whether it is what a pod deleted by force left."""
        return bool(self.lingers) and not self.until

    @property
    def is_promotion(self) -> bool:
        """Whether it promotes a running pod, and ends with the change of its label, not with the pod's appearance."""
        return self.charge.tier is Tier.GUARANTEED and self.pod.tier_label == Tier.PREEMPTIBLE


class LedgerDecision(NamedTuple):
    """A decision on the present world; `flight` is its charge, None where it charges nothing.

    `replaces` is a listed charge that ends with the write that makes this one, and only with it.
    """

    decision: Decision
    flight: InFlightCharge | None
    replaces: Uid | None = None


@dataclass(frozen=True, slots=True)
class Unseen:
    """The pod was never seen: it may still come."""


class Alive(NamedTuple):
    """The pod was seen; every watch that reached this resourceVersion has seen it, too."""

    version: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The pod was seen to end, or can never come: it no longer counts."""


Evidence = Unseen | Alive | Ended
UNSEEN: Final = Unseen()
ENDED: Final = Ended()


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The content of one ledger object. `turn` counts writes: a write without other changes counts, too.

    `moves` say for which teams it takes charges.
    """

    flights: Mapping[Uid, InFlightCharge] = field(default_factory=dict)
    folded: int = 0
    turn: int = 0
    moves: Moves = NO_MOVES

    def is_current_at(self, reached: int) -> bool:
        """Whether a watch of the pods up to this resourceVersion contains all pods that were folded."""
        return reached >= self.folded

    def turned(
        self, evidence: Callable[[Uid], Evidence], *, added: Mapping[Uid, InFlightCharge], withdrawn: Collection[Uid]
    ) -> "LedgerRecord":
        """Return the next state: without the charges that ended or were withdrawn, with the new ones.

        A pod that is alive raises `folded`, since from now on only the watches count it. A pod that ended does not: a
        watch that has not seen it yet rightly counts nothing.
        """
        flights, folded = dict(self.flights), self.folded
        for uid in self.flights:
            match evidence(uid):
                case Alive(version):
                    folded = max(folded, version)
                    del flights[uid]
                case Ended():
                    del flights[uid]
                case Unseen() if uid in withdrawn:
                    del flights[uid]
        flights.update(added)
        return LedgerRecord(flights, folded, self.turn + 1, self.moves)


EMPTY_LEDGER_RECORD: Final = LedgerRecord()
"""The state of a team that never charged anything."""
