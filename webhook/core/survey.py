"""The step before a plan: who is entitled to room now, and all that the plan is made from."""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain

from webhook.core.amount import Unlimited
from webhook.core.names import TeamName, Uid
from webhook.core.reclaim import Hold, Leaving, Scene
from webhook.core.retier import retier
from webhook.core.roll import Roll
from webhook.core.tenant import Tenant, team_guard
from webhook.core.tier import Tier
from webhook.core.victim import GuardId
from webhook.core.world import World


def entitled(roll: Roll, world: World) -> list[Tenant]:
    """List the waiting pods whose teams' guaranteed shares have room for them, those that wait longest first.

    The gate lets no more in than that, but an admin may have lowered the share since. A team's pods that run count
    first.
    """
    by_team: dict[TeamName, list[Tenant]] = {}
    for tenant in roll.waiting():
        by_team.setdefault(tenant.team, []).append(tenant)
    found = []
    for team in world.policy.teams:
        waiting = by_team.get(team.name, ())
        used = world.book(team.name).guaranteed - sum(tenant.pod.demand.gpus for tenant in waiting)
        for tenant in sorted(waiting, key=_age):
            if used + tenant.pod.demand.gpus <= team.gpus.guaranteed:
                used += tenant.pod.demand.gpus
                found.append(tenant)
    return sorted(found, key=_age)


def scene(
    roll: Roll,
    world: World,
    *,
    now: int,
    holds: Iterable[Hold] = (),
    chosen: Set[Uid] = frozenset(),
    spared: Set[Uid] = frozenset(),
    evicted: Mapping[TeamName, int] | None = None,
) -> Scene:
    """Put together what a plan is made from.

    `chosen` are the victims of earlier plans, which go whether they were sent away yet or not; `spared` are those that
    must not go now, besides those that are about to be promoted; `evicted` is how many each team lost within the last
    minute.
    """
    return Scene(
        fleet=world.fleet,
        yards=roll.yards,
        now=now,
        over_share=over_share(world),
        left=_left(roll, world, chosen, evicted or {}),
        holds=tuple(holds),
        leaving=(*chain.from_iterable(roll.leaving(now=now).values()), *_about_to_leave(roll, chosen)),
        order=world.policy.reclaim.order,
        spared=spared | rising(world),
        siblings=world.siblings,
    )


def over_share(world: World) -> dict[TeamName, int]:
    """Tell how many GPU units each team's pods hold on nodes beyond its guaranteed share."""
    shares = {team.name: team.gpus.guaranteed for team in world.policy.teams}
    return {team: max(0, book.total - book.waiting - shares.get(team, 0)) for team, book in world.books().items()}


def largest_seat(roll: Roll, world: World) -> int:
    """Tell how many GPU units one pod could have on one node if everybody there left who may be sent away.

    Minimum runtimes and budgets pass; protection and guaranteed pods stay. Closed nodes seat nobody.
    """
    weights, most = world.policy.resources, 0
    for node in world.fleet.nodes():
        if node.is_open:
            yard = roll.yards.on(node.name)
            lent = 0 if yard is None else sum(gpus for _, gpus in yard.saves)
            free = [world.fleet.free(node.name, name) * weights[name] for name in node.allocatable if name in weights]
            most = max(most, lent + int(sum(max(0, amount) for amount in free)))
    return most


def rising(world: World) -> set[Uid]:
    """List the borrowing pods that are about to be promoted: their teams have room in their shares for them."""
    return {
        change.pod.uid
        for team in world.policy.teams
        if world.book(team.name).guaranteed < team.gpus.guaranteed
        for change in retier(team, world)
        if change.charge.tier is Tier.GUARANTEED
    }


def _about_to_leave(roll: Roll, chosen: Iterable[Uid]) -> Iterator[Leaving]:
    for uid in chosen:
        tenant = roll.staying(uid)
        if tenant is not None and tenant.pod.node is not None:
            yield Leaving(uid, tenant.pod.node, tenant.pod.demand)


def _left(roll: Roll, world: World, chosen: Iterable[Uid], evicted: Mapping[TeamName, int]) -> dict[GuardId, int]:
    left = roll.allowances(chosen)
    bound = world.policy.reclaim.evictions_per_minute
    if not isinstance(bound, Unlimited):
        for team in world.books():
            left[team_guard(team)] = max(0, bound - evicted.get(team, 0))
    return left


def _age(tenant: Tenant) -> tuple[int, str, str, str]:
    pod = tenant.pod
    return pod.created, pod.namespace, pod.name, pod.uid
