"""The reclaim planner: which borrowing pods are evicted for guaranteed pods that wait, and on which nodes.

A round plans for all waiting pods, one after the other, each on top of the earlier ones: what one choice frees beyond
its need, the next pod may use. It is tried on the fleet itself and undone: the snapshot does not change, and the same
snapshot gives the same round. Gangs are planned whole or not at all. Nothing is evicted for a pod that would not fit
afterwards, or that fits now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from webhook.core.model.names import GangId, TeamName, Uid
from webhook.core.reclaim.domain_plan import place_together
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
    moves: list[Move] = []
    refused: list[NotPlanned] = []
    try:
        for together in _gangs(each for each in waiting if each.uid not in held):
            team = together[0].team
            if under_way is not None and counts[team] >= UNDER_WAY:
                continue
            before = trial.savepoint()
            outcomes = place_together(together, trial, snapshot)
            placed = [outcome for outcome in outcomes if isinstance(outcome, Move)]
            failed = [outcome for outcome in outcomes if isinstance(outcome, NotPlanned)]
            refused += failed
            if all(outcome.cause is NoPlan.FITS for outcome in failed):
                moves += placed
                counts[team] += len(placed)
            else:
                trial.undo(before)
                refused += [NotPlanned(move.waiting, NoPlan.GANG_INCOMPLETE) for move in placed]
    finally:
        trial.undo(0)
    return Round(tuple(moves), tuple(refused))


def _gangs(waiting: Iterable[ReclaimPod]) -> list[list[ReclaimPod]]:
    """Return the pods by gang, each gang at the position of its member that waits longest."""
    groups: dict[GangId | Uid, list[ReclaimPod]] = {}
    for each in sorted(waiting, key=lambda each: (each.pod.created, each.namespace, each.name, each.uid)):
        groups.setdefault(each.gang or each.uid, []).append(each)
    return list(groups.values())
