"""Room for a gang inside one domain: the domain where it costs the least, whole or not at all.

For each domain the whole gang is planned and undone; of a large gang a plan that costs as much as the best so far is
given up at once.
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
from webhook.core.reclaim.cost_scale import Effort
from webhook.core.reclaim.joint_plan import EFFORT, MOST, Outcome, is_served, plan_together, rank_of, repeat
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, NotPlanned, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victim import VictimIndex


def place_together(together: Sequence[ReclaimPod], trial: Trial, snapshot: ReclaimSnapshot) -> Sequence[Outcome]:
    """Return the outcome for each pod of a gang, in the domain that it asks for if there is one.

    If it only prefers a domain, larger ones are tried, and then all nodes. What is planned is taken in the trial. The
    largest pods take their room first: they fit on the fewest nodes.
    """
    together = sorted(together, key=lambda each: -each.demand.gpus)
    effort = Effort(EFFORT)
    request = next((each for waiting in together if (each := asked_domain(waiting, snapshot)) is not None), None)
    levels = asked_levels(request, snapshot.levels)
    for level in levels if request is not None else ():
        if (found := _in_one(together, level, trial, snapshot, effort)) is not None:
            return found
    if levels and request is not None and request.is_required:
        return [NotPlanned(each, NoPlan.NO_DOMAIN) for each in together]
    before = trial.savepoint()
    outcomes = [trial.place(each) for each in together]
    return plan_together(outcomes, trial, snapshot, before=before, effort=effort)


def asked_domain(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> DomainRequest | None:
    """Return the domain that a pod, or its PodGroup, asks for its gang."""
    return waiting.domain or (None if waiting.gang is None else snapshot.group_domains.get(waiting.gang))


def _in_one(
    together: Sequence[ReclaimPod], level: DomainLevel, trial: Trial, snapshot: ReclaimSnapshot, effort: Effort
) -> Sequence[Outcome] | None:
    """Place all pods in the domain of a level where that costs the least; None, and no change, where none has room."""
    fleet = snapshot.fleet
    best: tuple[tuple[Units, ...], int, Sequence[Outcome]] | None = None
    before = trial.savepoint()
    for room in rooms_for(together, level, snapshot):
        among = fleet.meeting(room.requirements)
        limit = None if best is None or len(together) <= MOST else best[0]
        found = _placed(together, trial, snapshot, among=among, limit=limit, effort=effort)
        trial.undo(before)
        if found is not None and (best is None or rank_of(found, trial) < best[0]):
            best = (rank_of(found, trial), among, found)
            if not any(best[0]):
                break
    if best is None:
        return None
    repeat(best[2], trial, among=best[1])
    return best[2]


def _placed(
    together: Sequence[ReclaimPod],
    trial: Trial,
    snapshot: ReclaimSnapshot,
    *,
    among: int,
    limit: tuple[Units, ...] | None,
    effort: Effort,
) -> Sequence[Outcome] | None:
    """Place all pods on these slots; None where one finds no room, or they cost as much as the limit."""
    before, found = trial.savepoint(), list[Outcome]()
    for each in together:
        found.append(trial.place(each, among=among))
        if limit is not None and isinstance(found[-1], Move) and rank_of(found, trial) >= limit:
            return None  # each further pod only adds to the cost
        if not is_served(found[-1]) and len(together) > MOST:
            return None
    outcomes = plan_together(found, trial, snapshot, before=before, effort=effort, among=among)
    return outcomes if all(map(is_served, outcomes)) else None


def rooms_for(together: Sequence[ReclaimPod], level: DomainLevel, snapshot: ReclaimSnapshot) -> Sequence[DomainRoom]:
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
        return 0 if victims is None else int(victims.gpus)
