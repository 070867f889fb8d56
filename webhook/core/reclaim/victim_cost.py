"""The cost of a choice of victims. Each criterion of the policy is the field of its name, so none ranks by another."""

from collections.abc import Iterable, Sequence
from operator import add
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.policy import ReclaimCost


class VictimCost(NamedTuple):
    """What victims cost: each part exact and never negative, and the parts of several victims add up.

    `gangs` are those that lose pods whose room is not needed, and workloads that fail. `surplus` is in GPU units beyond
    the need, of pods that have work to lose, `lost_work` in GPU units times seconds since the last save, `failures` in
    thousandths of what the victims' workloads may still fail, `over_share` in GPU units squared (the further the
    victims' teams are over their shares, the less), `age` in seconds. `departments` is how late the victims'
    departments go (department_order.py), `below` how many workloads fall below their minimums (surplus.py), `used` how
    many GPU units victims use, where others are idle and go first by policy; all three come before the criteria, in
    the policy's order.
    """

    departments: Units = 0
    gangs: int = 0
    surplus: Units = 0
    lost_work: Units = 0
    failures: int = 0
    over_share: Units = 0
    age: int = 0
    below: int = 0
    used: Units = 0

    def ranked(self, order: Sequence[ReclaimCost]) -> tuple[Units, ...]:
        """Return the parts in the order in which they count."""
        return (self.departments, self.below, self.used, *[self[_POSITION[criterion]] for criterion in order])

    def plus(self, other: "VictimCost") -> "VictimCost":
        """Return the cost of both."""
        return VictimCost._make(map(add, self, other))

    @classmethod
    def total(cls, costs: Iterable["VictimCost"]) -> "VictimCost":
        """Return the cost of all together."""
        return cls._make(map(sum, zip(cls(), *costs, strict=True)))


BEFORE_CRITERIA: Final = 3
"""How many parts of a rank come before those of the criteria: departments, workloads below their minimums, and what is
used."""

_POSITION: Final = {criterion: VictimCost._fields.index(criterion.name.lower()) for criterion in ReclaimCost}
"""Where each criterion is: a criterion without a field of its name ends the import."""
