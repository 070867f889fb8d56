"""Lower bounds of what victims on a node cost, without a search: each part of the cost by itself."""

from collections.abc import Mapping, Set
from typing import Final

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.victim import NodeVictims
from webhook.core.reclaim.victim_cost import VictimCost

SUMS: Final = 256
"""Sums of GPU units that are looked at for the least surplus: above that there is one for almost any need."""


class CostBounds:
    """Lower bounds for pods of one team, at the time of a snapshot."""

    def __init__(self, snapshot: ReclaimSnapshot, team: TeamName) -> None:
        self._now = snapshot.now
        self._departments = snapshot.department_order.costs(team)
        self._over_share = snapshot.over_share
        self._has_idle = bool(snapshot.idle)
        self._most = max(snapshot.over_share.values(), default=0)
        self._of_teams: dict[Set[TeamName], tuple[Units, Units]] = {}

    def of(self, victims: NodeVictims, gpus: Units) -> VictimCost:
        """Return the least cost of so many GPU units. For several needs on a node it is no less than their sum."""
        largest = 0 if victims.claims else max(victims.sizes, default=0)
        return self._bound(victims, gpus, surplus=0, age=gpus * self._youngest(victims) // largest if largest else 0)

    def of_one(self, victims: NodeVictims, gpus: Units) -> VictimCost:
        """Return the least cost of so many GPU units where no other pod uses what they free beyond it."""
        sizes = {} if victims.claims else victims.sizes
        age = fewest(sizes, gpus) * self._youngest(victims)
        surplus = 0 if victims.workless else least_surplus(sizes, gpus)
        return self._bound(victims, gpus, surplus=surplus, age=age)

    def _youngest(self, victims: NodeVictims) -> int:
        return max(0, self._now - victims.latest)

    def _bound(self, victims: NodeVictims, gpus: Units, *, surplus: Units, age: Units) -> VictimCost:
        factors = self._of_teams.get(victims.teams)
        if factors is None:
            department = _least(self._departments, victims.teams)
            factors = self._of_teams[victims.teams] = (department, self._least_over(victims.teams))
        lost = victims.least_loss(gpus, self._now)
        used = max(0, gpus - victims.idle) if self._has_idle else 0
        return VictimCost(gpus * factors[0], 0, surplus, lost, 0, gpus * factors[1], int(age), used=used)

    def _least_over(self, teams: Set[TeamName]) -> Units:
        return self._most - max((self._over_share.get(team, 0) for team in teams), default=0)


def fewest(sizes: Mapping[Units, int], gpus: Units) -> int:
    """Return how many pods of these sizes free so many GPU units at least, or all of them do."""
    if len(sizes) == 1:
        ((size, count),) = sizes.items()
        return min(count, int(-(-gpus // size))) if size else 0
    found = 0
    for size in sorted(sizes, reverse=True):
        if gpus <= 0:
            break
        used = min(sizes[size], int(-(-gpus // size))) if size else 0
        found, gpus = found + used, gpus - used * size
    return found


def least_surplus(sizes: Mapping[Units, int], gpus: Units) -> Units:
    """Return the least that pods of these sizes free beyond a need; 0 where that is too much to look at."""
    if gpus <= 0:
        return 0
    if len(sizes) == 1:
        ((size, count),) = sizes.items()
        return -gpus % size if size and count * size >= gpus else 0
    sums: set[Units] = {0}
    best: Units | None = None
    for size, count in sizes.items():
        more = {done + size * number for done in sums for number in range(1, count + 1)}
        enough = [done - gpus for done in more if done >= gpus]
        if enough:
            best = min(enough) if best is None else min(best, *enough)
        if best == 0:
            return 0
        sums |= {done for done in more if done < gpus}
        if len(sums) > SUMS:
            return 0
    return best or 0


def _least(costs: Mapping[TeamName, int], teams: Set[TeamName]) -> int:
    return min((costs.get(team, 0) for team in teams), default=0) if costs else 0
