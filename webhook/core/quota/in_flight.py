"""The rules of one team's page: the charges that the pods themselves do not prove yet.

A page lists charges in flight: allowed, and not seen in the cluster yet. What a team holds is the pods that a view
shows plus the flights whose pods it has not shown. That sum is exact only for a view that is not older than what was
folded away, so a page says up to which resourceVersion it was folded, and whoever commits must have come that far.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.decision import Charge, Decision
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.tier import Tier


class InFlightCharge(NamedTuple):
    """A pod that was allowed: what it is charged, and the node whose room it takes where one was chosen.

    Or one that runs and is promoted: charged as guaranteed, while its label still says preemptible. Or one that was
    deleted by force: with `lingers`, the seconds for which its node may still run it.
    """

    pod: Resident
    charge: Charge
    node: NodeName | None
    lingers: int = 0

    @property
    def is_promotion(self) -> bool:
        """Tell whether it lifts a pod that is there, and is settled by its label and not by its being there."""
        return self.charge.tier is Tier.GUARANTEED and self.pod.tier_label == Tier.PREEMPTIBLE


class LedgerDecision(NamedTuple):
    """A decision on the world as it is at this moment; `flight` is what it charges, None where that is nothing."""

    decision: Decision
    flight: InFlightCharge | None


class Unseen(NamedTuple):
    """The pod was never seen: it may still come."""


class Alive(NamedTuple):
    """The pod was seen; every view that reached this resourceVersion has seen it, too."""

    version: int


class Ended(NamedTuple):
    """The pod was seen to end, or can never come: it counts no more."""


Evidence = Unseen | Alive | Ended
UNSEEN: Final = Unseen()
ENDED: Final = Ended()


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What one object holds. `turn` counts writes: one that changes nothing else must still change the version."""

    flights: Mapping[Uid, InFlightCharge] = field(default_factory=dict)
    folded: int = 0
    turn: int = 0

    def is_current_at(self, reached: int) -> bool:
        """Tell whether a view of the pods that came this far misses none that was folded away."""
        return reached >= self.folded

    def turned(
        self, evidence: Callable[[Uid], Evidence], *, added: Mapping[Uid, InFlightCharge], withdrawn: Collection[Uid]
    ) -> "LedgerRecord":
        """Make the next page: flights that the evidence settles and those taken back leave, new ones come.

        A pod that is alive raises `folded`, since from now on only views count it. One that ended need not: a view
        that has not seen it yet rightly counts nothing.
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
        return LedgerRecord(flights, folded, self.turn + 1)


EMPTY_LEDGER_RECORD: Final = LedgerRecord()
"""What a team that never charged anything has."""
