"""The step before a plan: who is entitled to room now, and all that the plan is made from."""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain
from typing import Final, NamedTuple

from webhook.core.model.amount import Units, Unlimited
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.tier import Tier
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Cause, Hold, Leaving, Refused, Scene, Waiting
from webhook.core.reclaim.reclaim_pod import Tenant
from webhook.core.tiers.tier_changes import tier_changes
from webhook.core.world.world import World

GROWING_SECONDS: Final = 3
"""A gang is planned for when its last pod came so long ago, in whole seconds of the API server's clock: its pods come
some tenths of a second apart, and a plan for half of a gang evicts for nothing."""


def entitled(reclaim_index: ReclaimIndex, world: World) -> list[Tenant]:
    """List the waiting pods whose teams' guaranteed shares have room for them, those that wait longest first.

    The gate lets no more in than that, but an admin may have lowered the share since. A team's pods that run count
    first.
    """
    by_team: dict[TeamName, list[Tenant]] = {}
    for tenant in reclaim_index.waiting():
        by_team.setdefault(tenant.team, []).append(tenant)
    found = []
    for team in world.policy.teams:
        waiting = by_team.get(team.name, ())
        used = world.usage(team.name).guaranteed - sum(tenant.pod.demand.gpus for tenant in waiting)
        for tenant in sorted(waiting, key=_age):
            if used + tenant.pod.demand.gpus <= team.gpus.guaranteed:
                used += tenant.pod.demand.gpus
                found.append(tenant)
    return sorted(found, key=_age)


class Asking(NamedTuple):
    """The pods to plan for, those for which no plan is made, and whether a gang is growing: it is soon to be seen."""

    waiting: tuple[Waiting, ...]
    refused: tuple[Refused, ...]
    is_growing: bool


def asking(
    tenants: Iterable[Tenant],
    reclaim_index: ReclaimIndex,
    *,
    now: int,
    resting: Set[Uid] = frozenset(),
    has_holds: bool = False,
) -> Asking:
    """Sort those that are entitled to room.

    Plans are only for those for which kube-scheduler itself reports no room: an eviction mends nothing else. Taints
    count as that where room is held, since a held node says no more. A gang is planned for whole, once it has stopped
    growing.
    """
    reported = [tenant for tenant in tenants if tenant.report is not None]
    ready = {tenant.pod.uid: tenant for tenant in reported if _lacks_room(tenant, has_holds)}
    refused = [Refused(each.waiting(), Cause.NOT_FOR_ROOM) for each in reported if each.pod.uid not in ready]
    able = ready.keys() - resting
    gangs = {tenant.gang for tenant in ready.values() if tenant.gang is not None}
    growing = {gang for gang in gangs if is_growing(reclaim_index.members(gang), now=now)}
    complete = {gang for gang in gangs - growing if _is_complete(reclaim_index.members(gang), able)}
    found = []
    for uid, tenant in ready.items():
        if uid in able and (tenant.gang is None or tenant.gang in complete):
            found.append(tenant.waiting())
        elif uid in able and tenant.gang not in growing:
            refused.append(Refused(tenant.waiting(), Cause.GANG_INCOMPLETE))
    return Asking(tuple(found), tuple(refused), bool(growing))


def is_growing(members: Iterable[Tenant], *, now: int) -> bool:
    """Tell whether a gang got a pod just now: more may follow."""
    return any(0 <= now - member.pod.created < GROWING_SECONDS for member in members)


def _is_complete(members: Iterable[Tenant], ready: Set[Uid]) -> bool:
    """Tell whether all guaranteed pods of a gang that wait can be planned for, and as many are there as it has."""
    there = list(members)
    size = max(member.gang_size for member in there)
    return len(there) >= size and all(member.pod.uid in ready for member in there if member.is_waiting)


def _lacks_room(tenant: Tenant, has_holds: bool) -> bool:
    report = tenant.report
    return report is not None and (report.is_for_room or (has_holds and report.is_for_taints))


def scene(
    reclaim_index: ReclaimIndex,
    world: World,
    *,
    now: int,
    holds: Iterable[Hold] = (),
    chosen: Set[Uid] = frozenset(),
    refused: Set[Uid] = frozenset(),
    immovable: Set[Uid] = frozenset(),
    evicted: Mapping[TeamName, int] | None = None,
) -> Scene:
    """Put together what a plan is made from.

    `chosen` are the victims of earlier plans, which go whether they were sent away yet or not; `refused` are those that
    the API server would not evict lately, `immovable` those that it would not even delete; `evicted` is how many pods
    each team lost within the last minute.
    """
    rules = world.policy.reclaim
    return Scene(
        fleet=world.fleet,
        victim_index=reclaim_index.victim_index,
        now=now,
        over_share=over_share(world),
        left=reclaim_index.allowances(chosen),
        quotas=_quotas(world, evicted or {}),
        holds=tuple(holds),
        leaving=(
            *chain.from_iterable(reclaim_index.leaving(now=now).values()),
            *_about_to_leave(reclaim_index, chosen),
        ),
        order=rules.order,
        spared=immovable | rising(world),
        refused=refused,
        pod_counts=world.pod_counts,
        budget_seconds=rules.budget_seconds,
        minimum_runtime=rules.minimum_runtime_seconds,
        failures=reclaim_index.failures(chosen),
    )


def over_share(world: World) -> dict[TeamName, Units]:
    """Tell how many GPU units each team's pods hold on nodes beyond its guaranteed share."""
    shares = {team.name: team.gpus.guaranteed for team in world.policy.teams}
    return {
        team: max(0, book.total - book.waiting - shares.get(team, 0)) for team, book in world.usage_by_team().items()
    }


def largest_room(reclaim_index: ReclaimIndex, world: World) -> int:
    """Tell how many GPU units one pod could have on one node if everybody there left who may be sent away.

    Minimum runtimes and budgets pass; protection and guaranteed pods stay. Closed nodes seat nobody.
    """
    most: Units = 0
    for node in world.fleet.nodes():
        if node.is_open:
            yard = reclaim_index.victim_index.on(node.name)
            lent = 0 if yard is None else sum(gpus for _, gpus in yard.saves)
            offers = node.offers(world.policy.resources)
            free = sum(max(0, world.fleet.free(node.name, offer.resource)) * offer.weight for offer in offers)
            most = max(most, lent + free)
    return int(most)


def rising(world: World) -> set[Uid]:
    """List the borrowing pods that are about to be promoted: their teams have room in their shares for them."""
    return {
        change.pod.uid
        for team in world.policy.teams
        if world.usage(team.name).guaranteed < team.gpus.guaranteed
        for change in tier_changes(team, world)
        if change.charge.tier is Tier.GUARANTEED
    }


def _about_to_leave(reclaim_index: ReclaimIndex, chosen: Iterable[Uid]) -> Iterator[Leaving]:
    for uid in chosen:
        tenant = reclaim_index.staying(uid)
        if tenant is not None and tenant.pod.node is not None:
            yield Leaving(uid, tenant.pod.node, tenant.pod.demand)


def _quotas(world: World, evicted: Mapping[TeamName, int]) -> dict[TeamName, int]:
    bound = world.policy.reclaim.evictions_per_minute
    return (
        {} if isinstance(bound, Unlimited) else {team: bound - evicted.get(team, 0) for team in world.usage_by_team()}
    )


def _age(tenant: Tenant) -> tuple[int, str, str, str]:
    pod = tenant.pod
    return pod.created, pod.namespace, pod.name, pod.uid
