"""Room for a gang inside one domain: the domain where it costs the least, whole or not at all.

For each domain the whole gang is planned and undone; a plan that costs as much as the best so far is given up at once.
Of more domains than `MAX_ROOMS` those are planned for where the fewest GPUs are missing: a plan takes milliseconds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand
from webhook.core.model.domain_request import DomainLevel, DomainRequest, asked_levels
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.placement.domain_search import DomainRoom, EqualPods, domain_rooms
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, NotPlanned, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victim import VictimIndex
from webhook.core.reclaim.victim_cost import VictimCost

Outcome = Move | NotPlanned


def place_together(together: Sequence[ReclaimPod], trial: Trial, snapshot: ReclaimSnapshot) -> list[Outcome]:
    """Return the outcome for each pod of a gang, in the domain that it asks for if there is one.

    If it only prefers a domain, larger ones are tried, and then all nodes. What is planned is taken in the trial.
    """
    request = _request(together, snapshot)
    levels = asked_levels(request, snapshot.levels)
    if not levels or request is None:
        return [trial.place(each) for each in together]
    for level in levels:
        if (found := _in_one(together, level, trial, snapshot)) is not None:
            return found
    if request.is_required:
        return [NotPlanned(each, NoPlan.NO_DOMAIN) for each in together]
    return [trial.place(each) for each in together]


def _request(together: Sequence[ReclaimPod], snapshot: ReclaimSnapshot) -> DomainRequest | None:
    own = next((each.domain for each in together if each.domain is not None), None)
    gang = together[0].gang
    return own if own is not None or gang is None else snapshot.group_domains.get(gang)


def _in_one(
    together: Sequence[ReclaimPod], level: DomainLevel, trial: Trial, snapshot: ReclaimSnapshot
) -> list[Outcome] | None:
    """Place all pods in the domain of a level where that costs the least; None, and no change, where none has room."""
    fleet = snapshot.fleet
    best: tuple[tuple[Units, ...], int] | None = None
    before = trial.savepoint()
    for room in _rooms(together, level, snapshot):
        among = fleet.meeting(room.requirements)
        found = _placed(together, trial, among, limit=None if best is None else best[0])
        trial.undo(before)
        if found is not None:
            best = (_rank(found, trial), among)
            if not any(best[0]):
                break
    return None if best is None else _placed(together, trial, best[1], limit=None)


def _placed(
    together: Sequence[ReclaimPod], trial: Trial, among: int, *, limit: tuple[Units, ...] | None
) -> list[Outcome] | None:
    """Place all pods on these slots; None where one finds no room, or they cost as much as the limit."""
    found: list[Outcome] = []
    for each in together:
        outcome = trial.place(each, among=among)
        if isinstance(outcome, NotPlanned) and outcome.cause is not NoPlan.FITS:
            return None
        found.append(outcome)
        if limit is not None and isinstance(outcome, Move) and _rank(found, trial) >= limit:
            return None  # each further pod only adds to the cost
    return found if limit is None or _rank(found, trial) < limit else None


def _rank(found: Sequence[Outcome], trial: Trial) -> tuple[Units, ...]:
    """Return the cost of all moves together: protections that they override count first."""
    moves = [outcome for outcome in found if isinstance(outcome, Move)]
    total = VictimCost.total(move.cost for move in moves)
    broken, past = sum(move.breaks_workloads for move in moves), sum(move.is_past_budgets for move in moves)
    return (broken, past, *trial.rank_of(total))


def _rooms(together: Sequence[ReclaimPod], level: DomainLevel, snapshot: ReclaimSnapshot) -> Sequence[DomainRoom]:
    """Return the domains that could have room for all pods if all possible victims there went."""
    fleet = snapshot.fleet
    numbers = Counter((each.demand, fleet.matching(each.constraints)) for each in together)
    kinds = [EqualPods(demand, number, slots) for (demand, slots), number in numbers.items()]
    supply = _Reclaimable(fleet, snapshot.victim_index, max(together, key=lambda each: each.demand.gpus).demand)
    return domain_rooms(fleet, level, kinds, supply).enough


@dataclass(frozen=True, slots=True)
class _Reclaimable:
    """What is free, or held by possible victims: never too little. Implements Supply.

    Victims are counted by their GPUs; of what else they hold, all of it counts that a node has.
    """

    fleet: Fleet
    victim_index: VictimIndex
    demand: Demand

    def able(self, demand: Demand, among: int) -> int:
        return self.fleet.with_capacity(demand, among & self.fleet.open_bits)

    def amounts(self, resource: ResourceName, slots: Sequence[int]) -> Sequence[int]:
        wanted, fleet = dict(self.demand.devices), self.fleet
        if len(wanted) != 1 or resource not in wanted:
            return fleet.allocatable_at(slots, resource)
        weight = max(1, self.demand.gpus // wanted[resource])
        free = zip(fleet.names(slots), fleet.free_at(slots, resource), strict=True)
        return [amount + self._held(node) // weight for node, amount in free]

    def _held(self, node: NodeName) -> int:
        victims = self.victim_index.on(node)
        return 0 if victims is None else int(sum(gpus for _, gpus in victims.saves))
