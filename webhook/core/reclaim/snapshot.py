"""What one round reads.

Updates of holds as the cluster changes: which are over, short, or need other victims. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId, NodeName, ResourceName, TeamName, Uid, Units, Unlimited
from webhook.core.model.constraints import ANY_HOLD, Tier
from webhook.core.model.policy_addons import IdleAction
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, Purpose
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import DepartmentOrder, Hold, Move, NoPlan, NotPlanned, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod, Sharing
from webhook.core.reclaim.refused_nodes import RefusedNodes, unseen_text
from webhook.core.tiers.tier_changes import tier_changes
from webhook.core.world.world import World


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


# The step before a plan: which pods have a share left for them now, and the snapshot that the plan is made from.


GROWING_SECONDS: Final = 3
"""A gang is planned for when its last pod was created so long ago, in whole seconds of the API server's clock: its pods
are created some tenths of a second apart, and a plan for half of a gang evicts for nothing."""

CHARGED_SECONDS: Final = 1
"""The same after its last pod was charged, for one that keeps its gates: the leader charges a whole gang at once."""


def pods_within_share(reclaim_index: ReclaimIndex, world: World) -> list[ReclaimPod]:
    """Return the waiting pods whose teams' guaranteed shares have room for them, the longest waiting first.

    The webhook admits no more than that, but an admin may have lowered the share since. A team's running pods count
    first.
    """
    by_team: dict[TeamName, list[ReclaimPod]] = {}
    for gpu_pod in reclaim_index.waiting():
        by_team.setdefault(gpu_pod.team, []).append(gpu_pod)
    found = []
    for team in world.policy.teams:
        waiting = by_team.get(team.name, ())
        used = world.usage(team.name).guaranteed - sum(gpu_pod.demand.gpus for gpu_pod in waiting)
        for gpu_pod in sorted(waiting, key=_age):
            if used + gpu_pod.demand.gpus <= team.gpus.guaranteed:
                used += gpu_pod.demand.gpus
                found.append(gpu_pod)
    return sorted(found, key=_age)


class PodSelection(NamedTuple):
    """The pods to plan for, those without a plan, and whether a gang is growing and must be looked at again soon."""

    waiting: tuple[ReclaimPod, ...]
    refused: tuple[NotPlanned, ...]
    is_growing: bool


def select_pods(
    gpu_pods: Iterable[ReclaimPod],
    reclaim_index: ReclaimIndex,
    *,
    now: int,
    paused: Set[Uid] = frozenset(),
) -> PodSelection:
    """Return which of the pods within their share can be planned for: those without held room.

    Plans are only made for pods for which kube-scheduler reports no room, or pods that exclude them: an eviction solves
    nothing else. Taints count where room is held, since kube-scheduler reports nothing else of a held node. What is in
    line is reported by the leader of the webhook. A gang is planned for whole, once it has stopped growing.
    """
    have_room = {hold.waiting.uid for hold in holds(reclaim_index)}
    reported = [gpu_pod for gpu_pod in gpu_pods if gpu_pod.report is not None]
    ready = {gpu_pod.uid: gpu_pod for gpu_pod in reported if _lacks_room(gpu_pod, bool(have_room))}
    refused = [NotPlanned(each, NoPlan.NOT_FOR_ROOM) for each in reported if each.pod.uid not in ready]
    able = ready.keys() - paused
    gangs = {gpu_pod.gang for gpu_pod in ready.values() if gpu_pod.gang is not None}
    growing = {gang for gang in gangs if is_growing(reclaim_index.members(gang), now=now)}
    complete = {gang for gang in gangs - growing if _is_complete(reclaim_index.members(gang), able)}
    found = []
    for uid, gpu_pod in ready.items():
        if uid in able and (gpu_pod.gang is None or gpu_pod.gang in complete):
            found.append(gpu_pod)
        elif uid in able and gpu_pod.gang not in growing:
            refused.append(NotPlanned(gpu_pod, NoPlan.GANG_INCOMPLETE))
    waiting = tuple([gpu_pod for gpu_pod in found if gpu_pod.uid not in have_room])
    return PodSelection(waiting, tuple(refused), bool(growing))


def is_growing(members: Iterable[ReclaimPod], *, now: int) -> bool:
    """Whether a gang got a pod just now: more may follow."""
    return any(0 <= now - came < seconds for came, seconds in map(_came, members))


def _came(member: ReclaimPod) -> tuple[int, int]:
    """Return when a pod came to its gang, and for how long others may follow it."""
    if member.in_line is not None and member.report is not None:
        return member.report.since, CHARGED_SECONDS
    return member.pod.created, GROWING_SECONDS


def _is_complete(members: Iterable[ReclaimPod], ready: Set[Uid]) -> bool:
    """Whether all waiting guaranteed pods of a gang can be planned for, and as many pods exist as it has."""
    there = list(members)
    size = max(member.gang_size for member in there)
    return len(there) >= size and all(member.pod.uid in ready for member in there if member.is_waiting)


def may_take_room(gpu_pod: ReclaimPod) -> bool:
    """Whether a pod without a node would take room that comes free: its scheduler reports no other cause."""
    return gpu_pod.report is None or _lacks_room(gpu_pod, has_holds=True)


def _lacks_room(gpu_pod: ReclaimPod, has_holds: bool) -> bool:
    report = gpu_pod.report
    return report is not None and (report.is_for_room or report.is_for_peers or (has_holds and report.is_for_taints))


def take_snapshot(
    reclaim_index: ReclaimIndex,
    world: World,
    *,
    now: int,
    refused: Set[Uid] = frozenset(),
    immovable: Set[Uid] = frozenset(),
    refused_nodes: RefusedNodes | None = None,
) -> ReclaimSnapshot:
    """Return the snapshot that a plan is made from, with what earlier plans hold and evict.

    `refused` are the victims that the API server did not evict lately, `immovable` those that it did not even delete.
    `refused_nodes` is what the evictor knows of reports of schedulers beside the pods and the changes of nodes.
    """
    rules, chosen = world.policy.reclaim, reclaim_index.evictions.listed()
    return ReclaimSnapshot(
        fleet=world.fleet,
        victim_index=reclaim_index.victim_index,
        now=now,
        over_share=over_share(world),
        left=reclaim_index.allowances(chosen),
        quotas=_quotas(world, reclaim_index.losses(now=now)),
        holds=tuple(holds(reclaim_index)),
        leaving=(
            *chain.from_iterable(reclaim_index.leaving(now=now).values()),
            *filter(None, map(reclaim_index.staying, chosen)),
        ),
        order=rules.order,
        spared=immovable | rising(world),
        refused=refused,
        pod_counts=world.pod_counts,
        budget_seconds=rules.budget_seconds,
        minimum_runtime=rules.minimum_runtime_seconds,
        failures=reclaim_index.failures(chosen),
        department_order=DepartmentOrder(world.policy.teams, world.departments()),
        idle=preferred(reclaim_index, world),
        levels=world.policy.topology.levels,
        sharing=Sharing(world),
        group_domains=world.group_domains,
        closed_to=lambda each: world.rejecting_nodes.avoided(each.team, each.pod, world.fleet).closed,
        keeping=_keeping(reclaim_index, world),
        minimums=world.minimums,
        refused_nodes=refused_nodes or RefusedNodes(now=now, changes=world.rejecting_nodes.changes),
    )


def _keeping(reclaim_index: ReclaimIndex, world: World) -> int:
    found = 0
    for hold in reclaim_index.evictions.holds.values():
        if hold.places:
            found |= world.fleet.bit(hold.node)
    return found


def preferred(reclaim_index: ReclaimIndex, world: World) -> set[Uid]:
    """Return the borrowing pods that do not use their GPUs, of teams whose idle borrowers are evicted first."""
    if world.policy.idle is None:
        return set()
    idle = reclaim_index.victim_index.idle()
    return {victim.uid for victim in idle if IdleAction.PREFER in world.policy.on_idle(victim.team)}


def over_share(world: World) -> dict[TeamName, Units]:
    """Return how many GPU units each team's pods hold on nodes beyond its guaranteed share."""
    shares = {team.name: team.gpus.guaranteed for team in world.policy.teams}
    return {
        team: max(0, book.total - book.waiting - shares.get(team, 0)) for team, book in world.usage_by_team().items()
    }


def largest_room(reclaim_index: ReclaimIndex, world: World) -> int:
    """Return how many GPU units one pod could have on one node if all possible victims there were evicted.

    Minimum runtimes and budgets do not count; protected and guaranteed pods do. Closed nodes take no pods.
    """
    most: Units = 0
    for node in world.fleet.nodes():
        if node.is_open:
            node_victims = reclaim_index.victim_index.on(node.name)
            borrowed = 0 if node_victims is None else node_victims.gpus
            offers = node.offers(world.policy.resources)
            free = sum(max(0, world.fleet.free(node.name, offer.resource)) * offer.weight for offer in offers)
            most = max(most, borrowed + free)
    return int(most)


def rising(world: World) -> set[Uid]:
    """Return the borrowing pods that are about to be promoted: their teams' shares have room for them.

    Not those that started ahead of others: the leader promotes them once no pod waits for their room, which it knows.
    """
    return {
        change.pod.uid
        for team in world.policy.teams
        if world.usage(team.name).guaranteed < team.gpus.guaranteed or world.minimums.workloads()
        for change in tier_changes(team, world)
        if change.charge.tier is Tier.GUARANTEED and not change.pod.is_backfill
    }


def _quotas(world: World, evicted: Mapping[TeamName, int]) -> dict[TeamName, int]:
    bound = world.policy.reclaim.evictions_per_minute
    return (
        {} if isinstance(bound, Unlimited) else {team: bound - evicted.get(team, 0) for team in world.usage_by_team()}
    )


def _age(gpu_pod: ReclaimPod) -> tuple[int, str, str, str]:
    pod = gpu_pod.pod
    return pod.created, pod.namespace, pod.name, pod.uid


# What reclaim can do for one waiting pod: room that is held for it, a possible plan, or why not. Pure.
#
# It takes the evictor's own steps on the same data; nothing is evicted here.


WHY_NOT: Final = {
    NoPlan.FITS: "a node has room for it now",
    NoPlan.NO_NODE: "no open node that it may use is large enough, even without borrowers",
    NoPlan.TOPOLOGY_UNMET: "the nodes that could hold it do not satisfy its rules about other pods around them, or "
    "pods that are not evicted, such as those without GPUs, keep it off by theirs",
    NoPlan.NOT_ENOUGH_VICTIMS: "the borrowing pods that may be evicted now do not free enough GPUs on any one node",
    NoPlan.LIMITS_FULL: "the borrowing pods that may be evicted now do not free enough under its limits",
    NoPlan.NO_DOMAIN: "no one domain, as its gang requires, could have room for all of it, borrowing pods that may be "
    "evicted now taken into account",
    NoPlan.NOT_FOR_ROOM: "kube-scheduler reports another reason than full nodes, which no eviction solves",
    NoPlan.ROOM_REFUSED: "its scheduler finds no room on nodes that look free, and the borrowing pods that may be "
    "evicted now do not free enough GPUs on any other node",
    NoPlan.NO_EFFECT: "GPUs were freed for it as often as that is tried, and its scheduler did not use them",
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
            return Impossible("it borrows, and GPUs are reclaimed for guaranteed pods alone")
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
