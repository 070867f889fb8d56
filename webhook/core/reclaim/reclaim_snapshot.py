"""The step before a plan: which pods have a share left for them now, and the snapshot that the plan is made from."""

from collections.abc import Iterable, Mapping, Set
from itertools import chain
from typing import Final, NamedTuple

from webhook.core.model.amount import Units, Unlimited
from webhook.core.model.idle_rules import IdleAction
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.tier import Tier
from webhook.core.reclaim.department_order import DepartmentOrder
from webhook.core.reclaim.held_room import holds
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import NoPlan, NotPlanned, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.refused_nodes import RefusedNodes
from webhook.core.reclaim.shared_devices import Sharing
from webhook.core.tiers.tier_changes import tier_changes
from webhook.core.world.world import World

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
