"""The plan of a round; several pods at once.

Room for a gang inside one domain: the domain where it costs the least, whole or not at all.

For each domain the whole gang is planned and undone; of a large gang a plan that costs as much as the best so far is
given up at once.
Of more domains than `MAX_ROOMS` those are planned for where the fewest GPUs are missing: a plan takes milliseconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.core.model.amounts import GangId, NodeName, ResourceName, TeamName, Uid, Units
from webhook.core.model.constraints import DomainLevel, DomainRequest, asked_levels
from webhook.core.model.demand import Demand
from webhook.core.placement.domains import DomainRoom, EqualPods, domain_rooms
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.costs import Effort
from webhook.core.reclaim.joint_plan import EFFORT, MOST, Outcome, is_served, plan_together, rank_of, repeat
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, NotPlanned, ReclaimSnapshot, Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victims import VictimIndex


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


# The reclaim planner: which borrowing pods are evicted for guaranteed pods that wait, and on which nodes.
#
# A round plans for all waiting pods, one after the other, each on top of the earlier ones: what one choice frees beyond
# its need, the next pod may use. A few pods are then planned for together, where that costs less or serves one more
# (joint_plan.py). It is tried on the fleet itself and undone: the snapshot does not change, and the same snapshot gives
# the same round. Gangs are planned whole or not at all. Nothing is evicted for a pod that would not fit afterwards, or
# that fits now.


UNDER_WAY: Final = 128
"""Pods of one team that have room and do not use it yet. What is evicted faster than kube-scheduler places pods is idle
meanwhile, and the pods that it was evicted for seem not to use their room."""


def plan(
    waiting: Iterable[ReclaimPod], snapshot: ReclaimSnapshot, *, under_way: Mapping[TeamName, int] | None = None
) -> Round:
    """Return the plans for all waiting pods without a hold: the longest waiting first, ties by name.

    `under_way` is how many pods of each team have room that they do not use yet: with UNDER_WAY of them, the others of
    the team are left to a later round. None for all at once.
    """
    held = {hold.waiting.uid for hold in snapshot.holds}
    trial = Trial(snapshot)
    counts = Counter(under_way)
    planned: list[Sequence[Outcome]] = []
    served: dict[Uid, Outcome] = {}
    joint = _Joint(trial, snapshot, trial.savepoint(), Effort(EFFORT))
    try:
        for together in _gangs(snapshot.sharing.with_alternative(each) for each in waiting if each.uid not in held):
            team = together[0].team
            if under_way is not None and counts[team] >= UNDER_WAY:
                continue
            before = trial.savepoint()
            outcomes = place_together(together, trial, snapshot)
            planned.append(outcomes)
            if not _is_whole(outcomes):
                trial.undo(before)
                outcomes = joint.plan(served, outcomes)
            if _is_whole(outcomes):
                served |= {outcome.waiting.uid: outcome for outcome in outcomes}
                counts[team] += sum(isinstance(served[each.uid], Move) for each in together)
        if len(planned) > 1:
            served |= {outcome.waiting.uid: outcome for outcome in joint.plan(served, ())}
    finally:
        trial.undo(0)
    moves: list[Move] = []
    refused: list[NotPlanned] = []
    for group in planned:
        outcomes = [served.get(outcome.waiting.uid, outcome) for outcome in group]
        placed = [outcome for outcome in outcomes if isinstance(outcome, Move)]
        refused += [outcome for outcome in outcomes if isinstance(outcome, NotPlanned)]
        if _is_whole(outcomes):
            moves += placed
        else:
            refused += [NotPlanned(move.waiting, NoPlan.GANG_INCOMPLETE) for move in placed]
    return Round(tuple(moves), tuple(refused), trial.closed_nodes.names())


@dataclass(frozen=True, slots=True)
class _Joint:
    """Plans for all groups of a round together, since the savepoint `start`."""

    trial: Trial
    snapshot: ReclaimSnapshot
    start: int
    effort: Effort

    def plan(self, served: Mapping[Uid, Outcome], more: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return the outcomes of those that are served, at less cost or with more pods; else the given ones."""
        given = [*served.values(), *more]
        if not served or any(asked_domain(each.waiting, self.snapshot) is not None for each in given):
            return given
        found = plan_together(given, self.trial, self.snapshot, before=self.start, effort=self.effort)
        if not _is_whole(found):
            self.trial.undo(self.start)
            repeat(list(served.values()), self.trial)
        return found


def _is_whole(outcomes: Iterable[Outcome]) -> bool:
    return all(map(is_served, outcomes))


def _gangs(waiting: Iterable[ReclaimPod]) -> list[list[ReclaimPod]]:
    """Return the pods by gang, each gang at the position of its member that waits longest."""
    groups: dict[GangId | Uid, list[ReclaimPod]] = {}
    for each in sorted(waiting, key=lambda each: (each.pod.created, each.namespace, each.name, each.uid)):
        groups.setdefault(each.gang or each.uid, []).append(each)
    return list(groups.values())
