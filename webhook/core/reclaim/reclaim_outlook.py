"""What reclaim can do for one waiting pod: room that is held for it, a possible plan, or why not. Pure.

It takes the evictor's own steps on the same data; nothing is evicted here.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from webhook.core.model.names import NodeName
from webhook.core.model.tier import Tier
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Move, NoPlan
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reclaim_snapshot import pods_within_share, select_pods, take_snapshot
from webhook.core.reclaim.refused_nodes import unseen_text
from webhook.core.reclaim.reservation import EvictionTarget, NodeHold
from webhook.core.world.world import World

WHY_NOT: Final = {
    NoPlan.FITS: "a node has room for it now",
    NoPlan.NO_NODE: "no open node that it may use could hold it, even without borrowers",
    NoPlan.TOPOLOGY_UNMET: "the nodes that could hold it do not satisfy its rules about other pods around them, or "
    "pods that are not evicted, such as those without GPUs, keep it off by theirs",
    NoPlan.NOT_ENOUGH_VICTIMS: "the borrowing pods that may be evicted now do not make enough room on any one node",
    NoPlan.LIMITS_FULL: "the borrowing pods that may be evicted now do not make enough room under its limits",
    NoPlan.NO_DOMAIN: "no one domain, as its gang requires, could have room for all of it, borrowing pods that may be "
    "evicted now taken into account",
    NoPlan.NOT_FOR_ROOM: "kube-scheduler reports something else than too little room, which no eviction solves",
    NoPlan.ROOM_REFUSED: "its scheduler finds no room on nodes that look free, and the borrowing pods that may be "
    "evicted now do not make enough room on any other node",
    NoPlan.NO_EFFECT: "room was made for it as often as it is tried, and its scheduler did not use it",
    NoPlan.GANG_INCOMPLETE: "not all of its gang exists or would get room, and no pod is evicted for a part of it",
}
"""Why no borrowed GPUs are taken back for a pod."""


def why_not(waiting: ReclaimPod, cause: NoPlan, unseen: Sequence[NodeName] = ()) -> str:
    """Return why no borrowed GPUs are taken back for a pod, with its scheduler's words where Fairgate lacks its own."""
    if cause is NoPlan.ROOM_REFUSED and unseen:
        return f"{unseen_text(unseen, waiting)}, and no other node gets room by evictions that are possible now"
    if cause is NoPlan.NOT_FOR_ROOM and waiting.report is not None and waiting.report.why:
        return f"{WHY_NOT[cause]}: {waiting.report.why}"
    return WHY_NOT[cause]


class RoomKept(NamedTuple):
    """A plan is in progress: a node keeps room for the pod, and `targets` are evicted for that."""

    node_hold: NodeHold
    targets: tuple[EvictionTarget, ...]


class Possible(NamedTuple):
    """A plan could be made now; `unseen` are nodes that look free to the pod, and are closed to it."""

    move: Move
    unseen: tuple[NodeName, ...] = ()


class Impossible(NamedTuple):
    """Nothing can be done now; `cause` is None where the evictor would not even plan."""

    why: str
    cause: NoPlan | None = None


Outlook = RoomKept | Possible | Impossible


def outlook(waiting: ReclaimPod, reclaim_index: ReclaimIndex, world: World, *, now: int) -> Outlook:
    """Return what reclaim can do for a guaranteed pod that waits, or that would wait if it were created now."""
    for node_hold in reclaim_index.evictions.holds.values():
        if any(each.uid == waiting.uid for each in node_hold.beneficiaries):
            return RoomKept(node_hold, tuple([each for each in node_hold.targets if each.beneficiary == waiting.uid]))
    if not world.policy.is_enforced:
        return Impossible("policy is not enforced, so nothing is evicted")
    gpu_pods = pods_within_share(reclaim_index, world)
    selected = select_pods(gpu_pods, reclaim_index, now=now)
    if (gpu_pod := reclaim_index.get(waiting.uid)) is not None and waiting.uid not in {
        each.uid for each in selected.waiting
    }:
        if gpu_pod.pod.tier is not Tier.GUARANTEED:
            return Impossible("it borrows, and GPUs are taken back for guaranteed pods alone")
        if gpu_pod not in gpu_pods:
            return Impossible("its team's guaranteed share no longer has room for it")
        cause = next((each.cause for each in selected.refused if each.waiting.uid == waiting.uid), None)
        if cause is not None:
            return Impossible(why_not(gpu_pod, cause), cause)
        if gpu_pod.report is None:
            return Impossible("kube-scheduler has not reported yet that no node has room for it")
        return Impossible("its gang still grows, and is planned for once it is complete")
    return _planned(waiting, selected.waiting, reclaim_index, world, now=now)


def _planned(
    waiting: ReclaimPod, others: Iterable[ReclaimPod], reclaim_index: ReclaimIndex, world: World, *, now: int
) -> Outlook:
    """Return the result of a plan for all waiting pods, as the evictor makes it: the longest waiting first."""
    together = [*(each for each in others if each.uid != waiting.uid), waiting]
    found = plan(together, take_snapshot(reclaim_index, world, now=now))
    if (move := next((each for each in found.moves if each.waiting.uid == waiting.uid), None)) is not None:
        return Possible(move, found.unseen.get(waiting.uid, ()))
    cause = next((each.cause for each in found.refused if each.waiting.uid == waiting.uid), NoPlan.NO_NODE)
    return Impossible(why_not(waiting, cause, found.unseen.get(waiting.uid, ())), cause)
