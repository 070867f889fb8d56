"""What people want to know of a team at a glance: its share, and what of it is taken."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.model.amount import Limit, Units
from webhook.core.model.names import TeamName
from webhook.core.model.policy import Team
from webhook.core.world.world import World


class Summary(NamedTuple):
    """One team in GPU units. `borrowed` is what it holds beyond its guaranteed share; `waiting` is on no node yet."""

    team: TeamName
    guaranteed: int
    limit: Limit
    used: Units
    reserved: Units
    borrowed: Units
    preemptible: Units
    waiting: Units


def summary_of(name: TeamName, world: World) -> Summary:
    """Sum a team up; one that policy does not name is guaranteed nothing."""
    return _summary(world.policy.team(name) or Team(name), world)


def summaries(world: World) -> Iterator[Summary]:
    """Sum up every team, also those that hold nothing, and whoever else is charged."""
    named = {team.name: team for team in world.policy.teams}
    for name in dict.fromkeys([*named, *world.usage_by_team()]):
        yield _summary(named.get(name) or Team(name), world)


def _summary(team: Team, world: World) -> Summary:
    book = world.usage(team.name)
    return Summary(
        team=team.name,
        guaranteed=team.gpus.guaranteed,
        limit=team.gpus.limit,
        used=book.used,
        reserved=book.reserved,
        borrowed=max(0, book.total - team.gpus.guaranteed),
        preemptible=book.preemptible,
        waiting=book.waiting,
    )
