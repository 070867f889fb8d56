"""The tree of departments: checked as a whole, then built.

A department that states no guaranteed share has what its teams and departments are guaranteed together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.amount import exceeds, format_gpus, format_limit
from webhook.core.model.names import DepartmentName, GpuModel
from webhook.core.model.policy import Department as CoreDepartment
from webhook.core.model.policy import Share
from webhook.policy import teams
from webhook.policy.departments import Department, DepartmentShare
from webhook.policy.field_errors import expected_one_of
from webhook.policy.located import Located
from webhook.policy.problems import Problem

MAX_DEPTH: Final = 8
"""Levels of departments: every decision compares each level above its team."""


@dataclass(slots=True)
class _Node:
    """A department with what is below it. A model of None stands for all GPUs."""

    part: Located[Department]
    members: list[Located[teams.Team]] = field(default_factory=list)
    children: list["_Node"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.part.value.name

    def share(self, model: str | None) -> DepartmentShare:
        return self.part.value.gpus if model is None else self.part.value.models.get(model, DepartmentShare())

    def below(self, model: str | None) -> list[tuple[str, int]]:
        """Return what its teams and departments are guaranteed, with their names."""
        held = [(f"team {each.value.name}", _team_guaranteed(each.value, model)) for each in self.members]
        held += [(f"department {each.name}", each.guaranteed(model)) for each in self.children]
        return [(name, units) for name, units in held if units]

    def guaranteed(self, model: str | None) -> int:
        """Return its guaranteed share: stated, or that of its children together."""
        stated = self.share(model).guaranteed
        return sum(units for _, units in self.below(model)) if stated is None else stated


def check_tree(
    departments: list[Located[Department]],
    members: list[Located[teams.Team]],
    names: Iterable[str],
    references: list[Located[str]],
    *,
    is_complete: bool,
) -> Iterator[Problem]:
    """Yield what is wrong with the tree: unknown names, cycles, guarantees that do not fit into those above.

    `names` are those of all departments, invalid ones included; `references` are fields that name one. The sums are
    compared only where all parts are valid on their own.
    """
    known = sorted(set(names))
    unknown = [each for each in references if each.value not in known] if is_complete else []
    for reference in unknown:
        expected = expected_one_of(known, reference.value) if known else "no department is declared"
        yield reference.problem(f"unknown department: {expected}")
    cycles = list(_cycles(departments))
    yield from cycles
    if is_complete and not (unknown or cycles) and len(departments) == len(known):
        nodes = _nodes(departments, members)
        yield from _too_deep(nodes)
        for node in nodes.values():
            yield from _misfits(node)


def _cycles(departments: list[Located[Department]]) -> Iterator[Problem]:
    """Yield each cycle once, at the parent of its first department in the files."""
    parents = {part.value.name: part.value.parent for part in departments}
    reported: set[str] = set()
    for part in departments:
        way: list[str] = []
        at: str | None = part.value.name
        while at is not None and at not in way:
            way.append(at)
            at = parents.get(at)
        if at is None or at != part.value.name or at in reported:
            continue
        reported.update(way)
        if len(way) == 1:
            yield part.problem(
                f'"{at}" cannot be its own parent; leave parent out for a department at the top', "parent"
            )
        else:
            circle = " below ".join([*way, at])
            yield part.problem(f"departments form a cycle: {circle}; remove one parent", "parent")


def _nodes(departments: list[Located[Department]], members: list[Located[teams.Team]]) -> dict[str, _Node]:
    nodes = {part.value.name: _Node(part) for part in departments}
    for node in nodes.values():
        if (parent := node.part.value.parent) is not None:
            nodes[parent].children.append(node)
    for team in members:
        if team.value.department is not None:
            nodes[team.value.department].members.append(team)
    return nodes


def _too_deep(nodes: Mapping[str, _Node]) -> Iterator[Problem]:
    for node in nodes.values():
        above, depth = node.part.value.parent, 1
        while above is not None:
            above, depth = nodes[above].part.value.parent, depth + 1
        if depth == MAX_DEPTH + 1:
            yield node.part.problem(f"departments are nested deeper than {MAX_DEPTH} levels; use fewer", "parent")


def _misfits(node: _Node) -> Iterator[Problem]:
    """Yield where guarantees below a department do not fit into its own, or into its limit."""
    own = node.part.value
    yield from _misfit(node, None, "gpus")
    for model in own.models:
        yield from _misfit(node, model, "models", model)
    models = sum(node.guaranteed(model) for model in own.models)
    if exceeds(models, own.gpus.limit):
        text = f"models guarantee {format_gpus(models)} together, but the department's limit is"
        yield node.part.problem(f"{text} {format_limit(own.gpus.limit)}; raise it or lower them", "models")


def _misfit(node: _Node, model: str | None, *path: str) -> Iterator[Problem]:
    share, below = node.share(model), node.below(model)
    total = sum(units for _, units in below)
    listed = ", ".join(f"{name} {format_gpus(units)}" for name, units in below)
    if share.guaranteed is not None and total > share.guaranteed:
        text = f"guaranteed {format_gpus(share.guaranteed)} is less than its children are guaranteed together"
        advice = f"raise it to {format_gpus(total)} or lower theirs"
        yield node.part.problem(f"{text}, {format_gpus(total)} ({listed}); {advice}", *path, "guaranteed")
    elif share.guaranteed is None and exceeds(total, share.limit):
        text = f"limit {format_limit(share.limit)} is below what its children are guaranteed together"
        advice = f"raise it to {format_gpus(total)} or lower theirs"
        yield node.part.problem(f"{text}, {format_gpus(total)} ({listed}); {advice}", *path, "limit")


def _team_guaranteed(team: teams.Team, model: str | None) -> int:
    if model is None:
        return team.gpus.guaranteed
    return team.models[model].guaranteed if model in team.models else 0


class Tree:
    """The valid departments as the core has them."""

    def __init__(self, departments: list[Located[Department]], members: list[Located[teams.Team]]) -> None:
        self._nodes = _nodes(departments, members)
        self._built = {name: self._build(node) for name, node in self._nodes.items()}

    def all(self) -> tuple[CoreDepartment, ...]:
        """Return all departments by name."""
        return tuple(self._built[name] for name in sorted(self._built))

    def above(self, name: str | None) -> tuple[CoreDepartment, ...]:
        """Return a department and those above it."""
        found = []
        while name is not None:
            found.append(self._built[name])
            name = self._nodes[name].part.value.parent
        return tuple(found)

    def _build(self, node: _Node) -> CoreDepartment:
        own = node.part.value
        return CoreDepartment(
            name=DepartmentName(own.name),
            parent=None if own.parent is None else DepartmentName(own.parent),
            gpus=Share(node.guaranteed(None), own.gpus.limit),
            models={
                GpuModel(model): Share(node.guaranteed(model), share.limit)
                for model, share in sorted(own.models.items())
            },
            weight=own.weight,
        )
