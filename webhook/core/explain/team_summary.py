"""The summary of a team: its share and its usage."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.model.amount import Limit, Units
from webhook.core.model.names import TeamName
from webhook.core.model.policy import Team
from webhook.core.world.world import World


class Summary(NamedTuple):
    """One team in GPU units. `borrowed` is its usage beyond the guaranteed share; `waiting` has no node yet."""

    team: TeamName
    guaranteed: int
    limit: Limit
    used: Units
    reserved: Units
    borrowed: Units
    preemptible: Units
    waiting: Units


def summary_of(name: TeamName, world: World) -> Summary:
    """Return the summary of a team; a team unknown to policy is guaranteed nothing."""
    return _summary(world.policy.team(name) or Team(name), world)


def summaries(world: World) -> Iterator[Summary]:
    """Return the summary of every team, including those without pods and those charged but unknown to policy."""
    named = {team.name: team for team in world.policy.teams}
    for name in dict.fromkeys([*named, *world.usage_by_team()]):
        yield _summary(named.get(name) or Team(name), world)


def _summary(team: Team, world: World) -> Summary:
    usage = world.usage(team.name)
    return Summary(
        team=team.name,
        guaranteed=team.gpus.guaranteed,
        limit=team.gpus.limit,
        used=usage.used,
        reserved=usage.reserved,
        borrowed=max(0, usage.total - team.gpus.guaranteed),
        preemptible=usage.preemptible,
        waiting=usage.waiting,
    )
