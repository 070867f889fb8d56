"""Texts of field errors, and checks of the tree of departments.

Messages for pydantic's validation errors: what is wrong, and what is expected.
"""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from webhook.core.model.amounts import DepartmentName, GpuModel, exceeds, format_gpus, format_limit
from webhook.core.model.policy import Department as CoreDepartment
from webhook.core.model.policy import Share
from webhook.policy import teams
from webhook.policy.documents import FieldPath, Located, Problem, described, shortened
from webhook.policy.schema import UNION_TAGS
from webhook.policy.teams import Department, DepartmentShare

_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "int_type": "a whole number",
}


def field_errors(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[FieldPath, str]]:
    """Yield the path and the message of each error in a value of this model."""
    for details in error.errors(include_url=False):
        path = tuple(part for part in details["loc"] if part not in UNION_TAGS and part != "[key]")
        yield path, _message(details, path, model)


def expected_one_of(allowed: Sequence[str], got: object) -> str:
    """Return a message with the allowed words and the closest match."""
    text = f"expected {allowed[0]}" if len(allowed) == 1 else f"expected one of {', '.join(allowed)}"
    return f"{text}; got {described(got)}{_guess(got, allowed)}"


def _message(details: ErrorDetails, path: FieldPath, model: type[BaseModel]) -> str:
    got, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "value_error":
            text = str(context["error"])
        case "extra_forbidden":
            text = _unknown_field(path, model)
        case "missing":
            field = next(f for f in _model_at(model, path[:-1]).model_fields.values() if f.alias == path[-1])
            text = f"required: {(field.description or '').rstrip('.')}"
        case "enum" | "literal_error":
            words = str(context["expected"]).replace(" or ", ", ").split(", ")
            text = expected_one_of(["true" if word == "True" else word.strip("'") for word in words], got)
        case "too_short":
            text = "expected at least one item; otherwise leave the field out"
        case "greater_than_equal":
            text = f"expected {context['ge']} or more, got {described(got)}"
        case "less_than_equal":
            text = f"expected {context['le']} or less, got {described(got)}"
        case kind:
            text = _wrong_type(_EXPECTED[kind], got) if kind in _EXPECTED else f"{details['msg']}, got {described(got)}"
    return text


def _unknown_field(path: FieldPath, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in _model_at(model, path[:-1]).model_fields.items()]
    return "unknown field" + (_guess(path[-1], known) or f"; known here: {', '.join(known)}")


def _wrong_type(expected: str, got: object) -> str:
    quoted = ""
    if expected == "text" and isinstance(got, bool | int | float):
        quoted = f'; quote it: "{shortened(str(got).lower())}"'
    return f"expected {expected}, got {described(got)}{quoted}"


def _guess(got: object, allowed: Sequence[str]) -> str:
    by_lower = {word.lower(): word for word in allowed}
    close = get_close_matches(str(got).lower(), by_lower, n=1)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""


def _model_at(model: type[BaseModel], path: FieldPath) -> type[BaseModel]:
    """Return the model of the mapping at this path inside a model."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = next(field.annotation for field in current.model_fields.values() if field.alias == part)
            current = _bare(current)
        elif get_origin(current) in (list, dict):
            current = _bare(get_args(current)[-1])
    found: type[BaseModel] = _bare(current)
    return found


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    """Return a type without Annotated; of a union its structured member."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [_bare(member) for member in get_args(annotation)]
        return next(m for m in members if m not in (str, type(None)))
    return annotation


# The tree of departments: checked as a whole, then built.
#
# A department that states no guaranteed share has what its teams and departments are guaranteed together.


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
