"""The surplus of workloads that state a minimum: it goes first, from many workloads before one loses more.

A replica of a workload that states a minimum loses no work: its owner says that it may go. Each further one of a
workload costs more, as a failure does (failures.py), so that workloads lose one each before one loses two. How many
workloads fall below their minimums counts before all criteria. That never forbids a plan: what is borrowed goes back to
its owner, whatever a borrower states. All this depends on how many replicas of each workload go, not on which.

An elastic gang loses single members down to its minimum; below that it goes whole, and loses its work.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from webhook.core.model.names import WorkloadName
from webhook.core.model.pod import Resident
from webhook.core.reclaim.failures import share_used
from webhook.core.reclaim.victim import Victim
from webhook.core.reclaim.victim_cost import VictimCost
from webhook.core.world.minimums import Minimums

_NO_COST: Final = VictimCost()
_ALL: Final = -1
"""The count of a gang that went whole."""


class Trim(NamedTuple):
    """Victims of one workload that go together. `is_member`: of a gang, whose others stay; `is_whole`: with all."""

    workload: WorkloadName
    pods: int
    is_member: bool = False
    is_whole: bool = False


class Surplus:
    """What each workload may still lose, during a round."""

    def __init__(self, minimums: Minimums) -> None:
        self._minimums = minimums
        self._taken: Counter[WorkloadName] = Counter()

    def take(self, workload: WorkloadName, count: int) -> None:
        """Count replicas that leave; a negative number undoes it."""
        self._taken[workload] += count

    def spare(self, workload: WorkloadName | None) -> int | None:
        """Return how many replicas a workload may lose; None where it has no minimum that counts."""
        replicas = None if workload is None else self._minimums.of(workload)
        if workload is None or replicas is None or not replicas.has_surplus:
            return None
        return max(0, replicas.spare - self._taken[workload])

    def loses_no_work(self, victim: Victim) -> bool:
        """Whether a victim that goes alone is a replica of a workload with a minimum that counts."""
        return victim.gang is None and self.spare(victim.replica_of) is not None

    def trims(self, victims: Iterable[Victim], *, is_whole: bool = False) -> tuple[Trim, ...]:
        """Return what victims that go together take of workloads with a minimum that counts."""
        numbers = Counter(victim.replica_of for victim in victims if victim.replica_of is not None)
        return tuple(
            [
                Trim(workload, count, is_whole=is_whole)
                for workload, count in numbers.items()
                if self.spare(workload) is not None
            ]
        )

    def covers(self, trims: Iterable[Trim]) -> bool:
        """Whether the surplus is enough for all of them, so that no minimum is touched."""
        return all(trim.pods <= (self.spare(trim.workload) or 0) for trim in trims)

    def draw(self, taken: dict[WorkloadName, int], trims: tuple[Trim, ...]) -> VictimCost | None:
        """Count leaving replicas; return what that costs besides the victims' own cost, None where it cannot be.

        `taken` are those that leave already in the same choice. A gang goes member by member or whole.
        """
        if not trims:
            return _NO_COST
        below = failures = 0
        for workload, pods, is_member, is_whole in trims:
            spare, before = self.spare(workload) or 0, taken.get(workload, 0)
            if is_whole and before == 0:
                taken[workload], below = _ALL, 1
                continue
            after = before + pods
            if before == _ALL or is_whole or (is_member and after > spare):
                return None
            taken[workload] = after
            failures += sum(share_used(spare - number) for number in range(before, after))
            below += before <= spare < after
        return VictimCost(below=below, failures=failures)


def loses_no_work(pod: Resident, minimums: Minimums) -> bool:
    """Whether a pod that was evicted is a ready replica of a workload with a minimum that counts, and of no gang."""
    replicas = minimums.of(pod.replica.workload) if pod.is_ready and pod.gang is None else None
    return replicas is not None and replicas.has_surplus


NO_SURPLUS: Final = Surplus(Minimums())
"""No workload states a minimum."""
