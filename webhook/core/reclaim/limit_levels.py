"""The limits of teams and departments as plans read them: what is free under each, now and soon."""

from collections.abc import Iterable

from webhook.core.model.amount import Units, Unlimited
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.policy import Team
from webhook.core.reclaim.limit_plan import LevelName, LimitLevel
from webhook.core.reclaim.shared_devices import Going, Sharing
from webhook.core.world.world import World


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
