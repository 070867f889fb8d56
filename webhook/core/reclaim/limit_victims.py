"""Victims under a limit, and limits as plans read them.

The cheapest borrowing pods whose end makes room under a limit, wherever they run.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId, ResourceName, TeamName, Uid, Units, Unlimited
from webhook.core.model.policy import Team
from webhook.core.reclaim.costs import NO_DEVICES, CostScale, Need
from webhook.core.reclaim.reclaim_pods import Going, Sharing
from webhook.core.reclaim.victim_search import (
    Unit,
    VictimChoice,
    cheapest,
    departures,
    is_more_than_needed,
    rank_alone,
    single,
)
from webhook.core.reclaim.victims import NOWHERE, Victim
from webhook.core.world.world import World

ROWS: Final = 24
"""Rows of equal victims that are searched, the cheapest first, and more only where these do not free enough."""

_LIMIT: Final = (NOWHERE, ResourceName("limit"))


@dataclass(slots=True)
class _Among:
    """The victims that do not go alone; implements webhook.core.reclaim.reclaim_pods.Among."""

    by_uid: dict[Uid, Victim] = field(default_factory=dict)
    by_gang: dict[GangId, list[Victim]] = field(default_factory=dict)

    def add(self, victim: Victim) -> None:
        self.by_uid[victim.uid] = victim
        if victim.gang is not None:
            self.by_gang.setdefault(victim.gang, []).append(victim)

    def get(self, uid: Uid) -> Victim | None:
        return self.by_uid.get(uid)

    def members(self, gang: GangId) -> Iterable[Victim]:
        return self.by_gang.get(gang, ())


def cheapest_under(missing: Units, victims: Iterable[Victim], *, scale: CostScale) -> VictimChoice | None:
    """Return the victims of the least cost that hold so many units together; None where all of them hold less.

    Gangs go whole, and so do the users of a claim. Each row has no more of equal victims than one choice could need.
    """
    need = Need({_LIMIT: missing}, missing)
    rows: dict[object, list[Unit]] = {}
    groups: dict[object, list[Victim]] = {}
    among = _Among()
    for victim in victims:
        if not scale.may_go(victim):
            continue
        is_shared = scale.shares(victim)
        if is_shared or victim.gang is not None:
            groups.setdefault(victim.gang or victim.uid, []).append(victim)
            among.add(victim)
        if victim.demand.gpus and not is_shared and scale.is_past_minimum_runtime(victim):
            alike = (
                *(victim.demand.gpus, victim.team, victim.guards),
                *(victim.workload, victim.is_counted, victim.replica_of, victim.gang),
            )
            unit = single(victim, (victim.demand.gpus,), scale)
            if unit is not None:
                rows.setdefault(alike, []).append(unit)
    seen: set[Uid] = set()
    for name, members in groups.items():
        if seen.isdisjoint(member.uid for member in members):
            group = scale.with_companions(members, among)
            seen.update(member.uid for member in group)
            together = _unit(group, need, scale)
            if together.gpus and any(map(scale.is_past_minimum_runtime, group)):
                rows[name] = [together]
    return cheapest(need, _enough(rows.values(), missing, scale), room=NO_DEVICES, scale=scale)


def _unit(victims: tuple[Victim, ...], need: Need, scale: CostScale) -> Unit:
    freed = [(victim.demand.gpus,) for victim in victims]
    gpus: Units = sum(victim.demand.gpus for victim in victims)
    is_broken = is_more_than_needed(victims, freed, need, room=NO_DEVICES)
    is_gang = any(victim.gang is not None for victim in victims)
    trims = scale.surplus.trims(victims, is_whole=is_gang)
    cost = scale.cost_of(victims, gangs=int(is_broken))
    guards = Counter(guard for victim in victims for guard in victim.guards)
    workless = sum(victim.workless for victim in victims)
    return Unit(victims, (gpus,), gpus, cost, departures(victims), tuple(guards.items()), trims, workless)


def _enough(rows: Iterable[list[Unit]], missing: Units, scale: CostScale) -> list[list[Unit]]:
    """Return the cheapest rows, cut to what one choice could need."""

    def order(unit: Unit) -> tuple[object, ...]:
        return rank_alone(unit, scale), unit.victims[0].uid

    cut = [sorted(row, key=order)[: int(-(-missing // row[0].gpus))] for row in rows]
    cut.sort(key=lambda row: order(row[0]))
    count, freed = 0, 0 * missing
    while count < len(cut) and (count < ROWS or freed < missing):
        freed += sum(unit.gpus for unit in cut[count])
        count += 1
    return cut[:count]


# The limits of teams and departments as plans read them: what is free under each, now and soon.


LevelName = str


class LimitLevel(NamedTuple):
    """A limit and the teams that it counts, in GPU units: `free` now, and `coming` once pods that leave are gone."""

    name: LevelName
    teams: frozenset[TeamName]
    free: Units
    coming: Units = 0


def limit_levels(teams: Iterable[TeamName], world: World, *, leaving: Iterable[Uid] = ()) -> list[LimitLevel]:
    """Return the limits above some teams, each once.

    What the pods that leave hold is coming, except what is then charged to another user of their claims.
    """
    homes = {team.name: level_names(team) for team in world.policy.teams}
    coming: dict[LevelName, Units] = {}
    gone = set(leaving)
    going = Going(Sharing(world), together=gone)
    for uid in gone:
        pod, charge = world.pod(uid), world.charge_of(uid)
        if pod is not None and charge is not None:
            gpus = charge.gpus if pod.demand.own is None else going.freed(uid, pod.demand).gpus
            for name in homes.get(charge.team, ()):
                coming[name] = coming.get(name, 0) + gpus
    below: dict[LevelName, set[TeamName]] = {}
    for team, names in homes.items():
        for name in names:
            below.setdefault(name, set()).add(team)
    free = dict(level for team in teams for level in _free(team, world))
    return [LimitLevel(name, frozenset(below[name]), free[name], coming.get(name, 0)) for name in free]


def level_names(team: Team) -> tuple[LevelName, ...]:
    """Return the names of the limits that count a team, its own first."""
    own = () if isinstance(team.gpus.limit, Unlimited) else (f"team {team.name}",)
    above = (each for each in team.departments if not isinstance(each.gpus.limit, Unlimited))
    return (*own, *(f"department {each.name}" for each in above))


def is_anything_borrowed(team: Team, world: World) -> bool:
    """Whether a pod borrows under a limit that counts a team."""
    usage = world.usage(team.name)
    own = 0 if isinstance(team.gpus.limit, Unlimited) else usage.preemptible
    return bool(own) or any(
        level.preemptible for level in usage.levels if not isinstance(level.department.gpus.limit, Unlimited)
    )


def _free(name: TeamName, world: World) -> Iterable[tuple[LevelName, Units]]:
    team, usage = world.policy.team(name), world.usage(name)
    if team is None:
        return
    if not isinstance(team.gpus.limit, Unlimited):
        yield f"team {name}", team.gpus.limit - usage.total
    for level in usage.levels:
        if not isinstance(level.department.gpus.limit, Unlimited):
            yield f"department {level.department.name}", level.department.gpus.limit - level.total
