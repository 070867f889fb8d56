"""Updates of holds as the cluster changes: which are over, short, or need other victims. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from webhook.core.model.names import GangId, NodeName, ResourceName, Uid
from webhook.core.model.selector import ANY_HOLD
from webhook.core.model.tier import Tier
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Hold
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import Beneficiary, EvictionTarget, NodeHold, Purpose


def holds(reclaim_index: ReclaimIndex, node_holds: Iterable[NodeHold] | None = None) -> list[Hold]:
    """Return the held room as plans read it; of all nodes by default."""
    return [
        Hold(gpu_pod, node_hold.node)
        for node_hold in (reclaim_index.evictions.holds.values() if node_holds is None else node_holds)
        for beneficiary in node_hold.beneficiaries
        if (gpu_pod := reclaim_index.get(beneficiary.uid)) is not None
    ]


def current(
    before: NodeHold, reclaim_index: ReclaimIndex, fleet: Fleet, *, leaving: Sequence[ReclaimPod]
) -> tuple[NodeHold | None, bool]:
    """Return what is left of a hold, and whether that room is there or will be; None where nothing is left.

    `leaving` are the pods that leave its node.
    """
    kept = trimmed(before, reclaim_index, fleet)
    if kept is None or not kept.keeps_room or not is_short(kept, reclaim_index, fleet, leaving=leaving):
        return kept, True
    if kept.beneficiaries:
        kept = inherited(before, kept, reclaim_index, fleet, leaving=leaving)
    return kept, not is_short(kept, reclaim_index, fleet, leaving=leaving)


def trimmed(node_hold: NodeHold, reclaim_index: ReclaimIndex, fleet: Fleet) -> NodeHold | None:
    """Return a hold without beneficiaries that it does not serve, and without targets that end or may not be evicted.

    Targets whose beneficiary is dropped are dropped too, except those of broken gangs. None where nothing is left.
    """
    waiting = [b for b in node_hold.beneficiaries if is_served(b, node_hold.node, reclaim_index, fleet)]
    went = [target for target in node_hold.targets if reclaim_index.is_going(target.uid)]
    broken = node_hold.broken.union(target.gang for target in went if target.gang is not None)
    targets = tuple([target for target in node_hold.targets if _may_go(target, reclaim_index)])
    return node_hold.reduced(tuple(waiting), targets, broken)


def waits_for(beneficiary: Beneficiary, gpu_pod: ReclaimPod | None) -> bool:
    """Whether a pod still waits for room that is kept for it: moves may make room for one that borrows, too."""
    if gpu_pod is None:
        return False
    return gpu_pod.is_waiting if beneficiary.purpose is Purpose.RECLAIM else gpu_pod.is_unplaced


def is_served(beneficiary: Beneficiary, node: NodeName, reclaim_index: ReclaimIndex, fleet: Fleet) -> bool:
    """Whether a pod still waits, and its node would take it: labels, taints and what it offers may have changed.

    The taint of the hold itself is for others.
    """
    gpu_pod = reclaim_index.get(beneficiary.uid)
    if gpu_pod is None or not waits_for(beneficiary, gpu_pod):
        return False
    allowed = gpu_pod.constraints.joined(tolerations=(ANY_HOLD,))
    return fleet.get(node) is None or bool(
        fleet.with_capacity(gpu_pod.demand, fleet.matching(allowed) & fleet.bit(node))
    )


def inherited(
    before: NodeHold, kept: NodeHold, reclaim_index: ReclaimIndex, fleet: Fleet, *, leaving: Sequence[ReclaimPod]
) -> NodeHold:
    """Return a hold with victims of placed pods reassigned to pods that still wait, as many as the room is short of.

    The room of a node is for any of its beneficiaries: a placed pod may use the room of another pod's victims.
    """
    units: dict[GangId | Uid, tuple[EvictionTarget, ...]] = {}
    for target in before.targets:
        if target not in kept.targets and _may_go(target, reclaim_index):
            units[target.gang or target.uid] = (*units.get(target.gang or target.uid, ()), target)
    served = {target.beneficiary for target in kept.targets}
    first_waiting = next((each.uid for each in kept.beneficiaries if each.uid not in served), kept.beneficiaries[0].uid)
    added: list[tuple[EvictionTarget, ...]] = []

    def with_added(units: Iterable[tuple[EvictionTarget, ...]]) -> NodeHold:
        more = [target._replace(beneficiary=first_waiting) for unit in units for target in unit]
        return replace(kept, targets=(*kept.targets, *more))

    for unit in units.values():
        if not is_short(with_added(added), reclaim_index, fleet, leaving=leaving):
            break
        added.append(unit)
    for unit in list(added):
        rest = [each for each in added if each is not unit]
        if not is_short(with_added(rest), reclaim_index, fleet, leaving=leaving):
            added = rest
    return with_added(added)


def is_short(node_hold: NodeHold, reclaim_index: ReclaimIndex, fleet: Fleet, *, leaving: Sequence[ReclaimPod]) -> bool:
    """Whether held room will not be there: the node is gone or closed, or other pods took the room.

    `leaving` are the pods that leave its node.
    """
    if not fleet.bit(node_hold.node) & fleet.open_bits:
        return True
    wanted: dict[ResourceName, int] = {}
    for beneficiary in node_hold.beneficiaries:
        if (gpu_pod := reclaim_index.get(beneficiary.uid)) is not None:
            _add(wanted, gpu_pod.demand.requests, 1)
    for place in node_hold.places:
        _add(wanted, place.requests, 1)
    needed = set(wanted)
    for each in leaving:
        _add(wanted, each.demand.requests, -1)
    for target in node_hold.targets:
        victim = reclaim_index.staying(target.uid)
        if victim is not None and victim.pod.node == node_hold.node:
            _add(wanted, victim.pod.demand.requests, -1)
    return any(wanted[name] > fleet.free(node_hold.node, name) for name in needed)


def _may_go(target: EvictionTarget, reclaim_index: ReclaimIndex) -> bool:
    """Whether a target exists, does not terminate yet, and borrows; one that moves needs its place, too."""
    victim = reclaim_index.staying(target.uid)
    if victim is None or not (victim.pod.tier is Tier.PREEMPTIBLE or (target.is_moved and victim.is_movable)):
        return False
    return not target.is_moved or target.uid in reclaim_index.evictions.moving()


def _add(amounts: dict[ResourceName, int], requests: Iterable[tuple[ResourceName, int]], sign: int) -> None:
    for name, amount in requests:
        amounts[name] = amounts.get(name, 0) + sign * amount
