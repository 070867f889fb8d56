"""Teams and departments with their shares and what they hold: one row for every surface that shows them. Pure.

`used` is everything that is charged. Of that, `reserved` is of pods that are not in the cluster yet, `preemptible` may
be evicted, and `beyond_share` is what exceeds the guaranteed share: a team within its share may have preemptible pods
by choice.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from webhook.core.model.amount import Limit, Units, exact_units, format_limit
from webhook.core.model.names import DepartmentName, GpuModel, TeamName
from webhook.core.model.policy import Department, Share, Team
from webhook.core.quota.departments import DepartmentUsage
from webhook.core.quota.ledger_moves import department_ledger, department_of
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.waiting_pods import InLine
from webhook.core.world.world import World

NOTHING_IN_LINE: Final = InLine(0, 0)
_AMOUNTS: Final = ("guaranteed", "limit", "used", "reserved", "preemptible", "beyond_share", "waiting")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The share and usage of one GPU model, of a team or a department."""

    model: GpuModel
    guaranteed: int
    limit: Limit
    used: Units
    preemptible: Units


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What a team or a department has, in GPU units.

    `waiting` is of pods without a node, `lingering` the part of `reserved` that pods deleted by force left. `queued`
    are the pods in line, which are not charged; those in `starting` are, and keep their gate until their room is there.
    """

    guaranteed: int
    limit: Limit
    used: Units
    reserved: Units
    preemptible: Units
    waiting: Units
    lingering: Units
    models: tuple[ModelRow, ...] = ()
    queued: InLine = NOTHING_IN_LINE
    starting: InLine = NOTHING_IN_LINE

    @property
    def beyond_share(self) -> Units:
        """What is held beyond the guaranteed share."""
        return max(0, self.used - self.guaranteed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRow(UsageRow):
    """A team; `idle` is what its pods hold and do not use."""

    name: TeamName
    department: DepartmentName | None = None
    holders: tuple[tuple[str, Units], ...] = ()
    idle: Units = 0

    @property
    def ledger(self) -> TeamName:
        """The name of its ledger."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentRow(UsageRow):
    """A department, with what the teams below it have together."""

    name: DepartmentName
    parent: DepartmentName | None
    weight: int | Fraction

    @property
    def ledger(self) -> TeamName:
        """The name of its ledger."""
        return department_ledger(self.name)


def amounts(row: UsageRow | ModelRow) -> dict[str, Any]:
    """Return the amounts of a row by name, as exact texts."""
    return {name: format_limit(getattr(row, name)) for name in _AMOUNTS if hasattr(row, name)}


def team_rows(world: World, *, holders: int = 0) -> Iterator[TeamRow]:
    """Yield every team: those of policy, and others that were charged or have pods in line."""
    known = dict.fromkeys(team.name for team in world.policy.teams)
    others = sorted({*world.usage_by_team(), *world.waiting.teams()} - known.keys())
    for name in (*known, *others):
        yield team_row(name, world, holders=holders)


def team_row(name: TeamName, world: World, *, holders: int = 0) -> TeamRow:
    """Return a team with its largest holders; one that policy does not know is guaranteed nothing."""
    team, usage = world.policy.team(name) or Team(name), world.usage(name)
    return TeamRow(
        name=name,
        department=team.departments[0].name if team.departments else None,
        holders=tuple(usage.largest_holders(holders)) if holders else (),
        guaranteed=team.gpus.guaranteed,
        limit=team.gpus.limit,
        used=usage.total,
        reserved=usage.reserved,
        preemptible=usage.preemptible,
        waiting=usage.waiting,
        lingering=usage.lingering,
        models=_models(team.models, usage),
        queued=world.waiting.uncharged(name),
        starting=world.waiting.charged(name),
    )


def department_rows(world: World) -> Iterator[DepartmentRow]:
    """Yield every department of policy."""
    for usage in world.departments():
        yield _department(usage, world)


def ledger_row(name: TeamName, world: World) -> TeamRow | DepartmentRow:
    """Return a team, or a department by the name of its ledger."""
    if (department := department_of(name)) is None:
        return team_row(name, world)
    level = next((each for each in world.departments() if each.department.name == department), None)
    return _department(level or DepartmentUsage(Department(department)), world)


def _department(usage: DepartmentUsage, world: World) -> DepartmentRow:
    own = usage.department
    teams = list(_teams_in_line(own.name, world))
    return DepartmentRow(
        name=own.name,
        parent=own.parent,
        weight=own.weight,
        guaranteed=own.gpus.guaranteed,
        limit=own.gpus.limit,
        used=usage.total,
        reserved=usage.reserved,
        preemptible=usage.preemptible,
        waiting=usage.waiting,
        lingering=usage.lingering,
        models=_models(own.models, usage),
        queued=_sum(map(world.waiting.uncharged, teams)),
        starting=_sum(map(world.waiting.charged, teams)),
    )


def _models(shares: Mapping[GpuModel, Share], usage: TeamUsage | DepartmentUsage) -> tuple[ModelRow, ...]:
    return tuple(
        ModelRow(model, share.guaranteed, share.limit, used, used - usage.guaranteed_model(model))
        for model, share in shares.items()
        for used in (usage.model(model),)
    )


def _sum(parts: Iterable[InLine]) -> InLine:
    found = list(parts)
    return InLine(sum(each.pods for each in found), exact_units(sum(each.gpus for each in found)))


def _teams_in_line(department: DepartmentName, world: World) -> Iterator[TeamName]:
    """Yield the teams below a department that have pods in line."""
    for name in world.waiting.teams():
        team = world.policy.team(name)
        if team is not None and any(each.name == department for each in team.departments):
            yield name
