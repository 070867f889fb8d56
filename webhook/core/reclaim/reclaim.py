"""The reclaim planner: which borrowing pods are evicted for guaranteed pods that wait, and on which nodes.

A round plans for all waiting pods, one after the other, each on top of the earlier ones: what one choice frees beyond
its need, the next pod may use. A few pods are then planned for together, where that costs less or serves one more
(joint_plan.py). It is tried on the fleet itself and undone: the snapshot does not change, and the same snapshot gives
the same round. Gangs are planned whole or not at all. Nothing is evicted for a pod that would not fit afterwards, or
that fits now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from webhook.core.model.names import GangId, TeamName, Uid
from webhook.core.reclaim.cost_scale import Effort
from webhook.core.reclaim.domain_plan import asked_domain, place_together
from webhook.core.reclaim.joint_plan import EFFORT, Outcome, is_served, plan_together
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, NotPlanned, ReclaimSnapshot, Round
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.trial import Trial

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
    start = trial.savepoint()
    counts = Counter(under_way)
    planned: list[Sequence[Outcome]] = []
    try:
        for together in _gangs(each for each in waiting if each.uid not in held):
            team = together[0].team
            if under_way is not None and counts[team] >= UNDER_WAY:
                continue
            before = trial.savepoint()
            outcomes = place_together(together, trial, snapshot)
            if _is_whole(outcomes):
                counts[team] += sum(isinstance(outcome, Move) for outcome in outcomes)
            else:
                trial.undo(before)
            planned.append(outcomes)
        if len(planned) > 1 and all(asked_domain(each.waiting, snapshot) is None for each in chain(*planned)):
            planned = _joined(planned, trial, snapshot, start)
    finally:
        trial.undo(0)
    moves: list[Move] = []
    refused: list[NotPlanned] = []
    for outcomes in planned:
        placed = [outcome for outcome in outcomes if isinstance(outcome, Move)]
        refused += [outcome for outcome in outcomes if isinstance(outcome, NotPlanned)]
        if _is_whole(outcomes):
            moves += placed
        else:
            refused += [NotPlanned(move.waiting, NoPlan.GANG_INCOMPLETE) for move in placed]
    return Round(tuple(moves), tuple(refused))


def _is_whole(outcomes: Iterable[Outcome]) -> bool:
    return all(map(is_served, outcomes))


def _joined(
    planned: Sequence[Sequence[Outcome]], trial: Trial, snapshot: ReclaimSnapshot, start: int
) -> list[Sequence[Outcome]]:
    """Plan for all groups together: first to serve those that were not, the longest waiting first."""
    effort = Effort(EFFORT)
    served = list(chain.from_iterable(filter(_is_whole, planned)))
    for more in [*(outcomes for outcomes in planned if not _is_whole(outcomes)), ()]:
        found = plan_together([*served, *more], trial, snapshot, before=start, effort=effort)
        if _is_whole(found):
            served = list(found)
    new = {outcome.waiting.uid: outcome for outcome in served}
    return [[new.get(outcome.waiting.uid, outcome) for outcome in outcomes] for outcomes in planned]


def _gangs(waiting: Iterable[ReclaimPod]) -> list[list[ReclaimPod]]:
    """Return the pods by gang, each gang at the position of its member that waits longest."""
    groups: dict[GangId | Uid, list[ReclaimPod]] = {}
    for each in sorted(waiting, key=lambda each: (each.pod.created, each.namespace, each.name, each.uid)):
        groups.setdefault(each.gang or each.uid, []).append(each)
    return list(groups.values())
