"""The summary of a team: its share and its usage."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.core.model.amount import Limit, Units, exact_units
from webhook.core.model.names import DepartmentName, TeamName
from webhook.core.model.policy import Department, Team
from webhook.core.quota.departments import DepartmentUsage
from webhook.core.quota.ledger_moves import department_ledger, department_of
from webhook.core.world.world import World


class TeamSummary(NamedTuple):
    """One team in GPU units. `borrowed` is its usage beyond the guaranteed share; `waiting` has no node yet.

    `queued` is the number of pods that wait in line; they are charged nothing, and ask for `queued_gpus`. `lingering`
    is the part of `reserved` that pods deleted by force left.
    """

    team: TeamName
    guaranteed: int
    limit: Limit
    used: Units
    reserved: Units
    borrowed: Units
    preemptible: Units
    waiting: Units
    queued: int = 0
    queued_gpus: Units = 0
    lingering: Units = 0


def summary_of(name: TeamName, world: World) -> TeamSummary:
    """Return the summary of a team, or of a department by the name of its ledger.

    What policy does not know is guaranteed nothing.
    """
    if (department := department_of(name)) is not None:
        level = next((each for each in world.departments() if each.department.name == department), None)
        found = department_summary(level or DepartmentUsage(Department(department)))
        return _with_line(found, _teams_in_line(department, world), world)
    return _with_line(_summary(world.policy.team(name) or Team(name), world), (name,), world)


def summaries(world: World) -> Iterator[TeamSummary]:
    """Return the summary of every team, including those without pods and those charged but unknown to policy."""
    for name in dict.fromkeys([*(team.name for team in world.policy.teams), *world.usage_by_team()]):
        yield _summary(world.policy.team(name) or Team(name), world)


def department_summary(level: DepartmentUsage) -> TeamSummary:
    """Return the summary of a department, by the name of its ledger."""
    share = level.department.gpus
    return TeamSummary(
        team=department_ledger(level.department.name),
        guaranteed=share.guaranteed,
        limit=share.limit,
        used=level.total - level.reserved,
        reserved=level.reserved,
        borrowed=max(0, level.total - share.guaranteed),
        preemptible=level.preemptible,
        waiting=level.waiting,
        lingering=level.lingering,
    )


def _summary(team: Team, world: World) -> TeamSummary:
    usage = world.usage(team.name)
    return TeamSummary(
        team=team.name,
        guaranteed=team.gpus.guaranteed,
        limit=team.gpus.limit,
        used=usage.used,
        reserved=usage.reserved,
        borrowed=max(0, usage.total - team.gpus.guaranteed),
        preemptible=usage.preemptible,
        waiting=usage.waiting,
        lingering=usage.lingering,
    )


def _with_line(found: TeamSummary, teams: Iterable[TeamName], world: World) -> TeamSummary:
    """Return the summary with the line of these teams."""
    pods, gpus = 0, exact_units(0)
    for name in teams:
        in_line = world.waiting.uncharged(name)
        pods, gpus = pods + in_line.pods, gpus + in_line.gpus
    return found._replace(queued=pods, queued_gpus=gpus)


def _teams_in_line(department: DepartmentName, world: World) -> Iterator[TeamName]:
    """Yield the teams below a department that have pods in line."""
    for name in world.waiting.teams():
        team = world.policy.team(name)
        if team is not None and any(each.name == department for each in team.departments):
            yield name
