"""The reclaim planner: which borrowing pods are evicted for guaranteed pods that wait, and on which nodes.

A round plans for all waiting pods, one after the other, each on top of the earlier ones: what one choice frees beyond
its need, the next pod may use. A few pods are then planned for together, where that costs less or serves one more
(joint_plan.py). It is tried on the fleet itself and undone: the snapshot does not change, and the same snapshot gives
the same round. Gangs are planned whole or not at all. Nothing is evicted for a pod that would not fit afterwards, or
that fits now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.core.model.names import GangId, TeamName, Uid
from webhook.core.reclaim.cost_scale import Effort
from webhook.core.reclaim.domain_plan import asked_domain, place_together
from webhook.core.reclaim.joint_plan import EFFORT, Outcome, is_served, plan_together, repeat
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
