"""Checks documents: each part on its own, then all parts together. Reports every problem."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from webhook.core.model.gpu_shares import DEVICE
from webhook.policy import schema
from webhook.policy.addons import Idle, Notify
from webhook.policy.documents import Document, FieldPath, Located, Problem, described
from webhook.policy.field_errors import check_tree, expected_one_of, field_errors
from webhook.policy.sections import Workloads
from webhook.policy.teams import Defaults, Department, Team
from webhook.policy.values import resource_name

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class NamespaceClaim:
    """A namespace or glob in a team's `namespaces`."""

    team: str
    namespace: Located[str]


@dataclass(slots=True)
class Draft:
    """The parts of all documents that are valid on their own, and every problem."""

    teams: list[Located[Team]] = field(default_factory=list)
    departments: list[Located[Department]] = field(default_factory=list)
    pools: list[Located[schema.Pool]] = field(default_factory=list)
    resources: dict[str, Located[schema.Resource]] = field(default_factory=dict)
    sections: dict[str, Located[Any]] = field(default_factory=dict)
    exempt: list[Located[str]] = field(default_factory=list)
    exempts_operators: bool = True
    names: dict[str, list[Located[str]]] = field(default_factory=lambda: {"teams": [], "departments": [], "pools": []})
    """All teams, departments and pools, invalid ones included: a reference to one of those is not a second problem."""
    claims: list[NamespaceClaim] = field(default_factory=list)
    references: list[Located[str]] = field(default_factory=list)
    """Teams that pools refer to."""
    department_references: list[Located[str]] = field(default_factory=list)
    """Departments that teams and departments refer to."""
    problems: list[Problem] = field(default_factory=list)

    def section(self, name: str, default: M) -> M:
        """Return a section, or its default."""
        found = self.sections.get(name)
        return default if found is None else found.value


def check_documents(documents: Iterable[Document], *, is_complete: bool) -> Draft:
    """Check documents on their own and together.

    `is_complete` is False if a file could not be parsed: pools may then refer to teams that are declared there.
    """
    draft = Draft()
    for document in documents:
        _read(document, draft)
    for named in (*draft.names.values(), draft.exempt):
        draft.problems += _repeated(named)
    reported = {(problem.file, problem.path) for problem in draft.problems}
    tree = check_tree(
        draft.departments,
        draft.teams,
        [name.value for name in draft.names["departments"]],
        draft.department_references,
        is_complete=is_complete,
    )
    across = [*_claimed_twice(draft.claims), *(_unknown_teams(draft) if is_complete else ()), *tree]
    draft.problems += (problem for problem in across if (problem.file, problem.path) not in reported)
    return draft


def _read(document: Document, draft: Draft) -> None:
    if not isinstance(document.value, dict):
        draft.problems.append(
            document.problem((), f"expected a mapping with apiVersion and kind, got {described(document.value)}")
        )
        return
    _check_header(document, document.value, draft)
    for name, value in document.value.items():
        match name:
            case "apiVersion" | "kind":
                pass
            case _ if value is None and name in _KNOWN:
                pass  # a section with all its content commented out
            case "teams" | "departments" | "pools":
                _read_list(document, name, value, draft)
            case "resources":
                _read_resources(document, value, draft)
            case "exempt":
                exempt = _checked(document, (name,), value, schema.Exempt, draft)
                names = exempt.value.namespaces if exempt else []
                path = (name, "namespaces")
                draft.exempts_operators &= exempt is None or exempt.value.operators
                draft.exempt += (Located(text, document, (*path, index)) for index, text in enumerate(names))
            case _ if name in _SECTIONS:
                _read_section(document, name, value, draft)


def _read_list(document: Document, name: str, value: object, draft: Draft) -> None:
    match name:
        case "teams":
            draft.teams += _items(document, name, value, Team, draft)
        case "departments":
            draft.departments += _items(document, name, value, Department, draft)
        case _:
            draft.pools += _items(document, name, value, schema.Pool, draft)


_SECTIONS: dict[str, type[BaseModel]] = {
    "enforce": schema.Enforce,
    "defaults": Defaults,
    "placement": schema.Placement,
    "reclaim": schema.Reclaim,
    "defragment": schema.Defragment,
    "queue": schema.Queue,
    "topology": schema.Topology,
    "idle": Idle,
    "priorityClasses": schema.PriorityClasses,
    "workloads": Workloads,
    "notify": Notify,
}
_HEADER = {"apiVersion": schema.API_VERSION, "kind": schema.KIND}
_KNOWN = frozenset(info.alias or name for name, info in schema.PolicyFile.model_fields.items())


def _check_header(document: Document, value: dict[str, object], draft: Draft) -> None:
    """Check the top-level fields; sections are checked part by part, so that one invalid part does not hide others."""
    header = {name: value[name] for name in value if name not in _KNOWN or name in _HEADER}
    try:
        schema.PolicyFile.model_validate(header)
    except ValidationError as error:
        for path, message in field_errors(error, schema.PolicyFile):
            name = str(path[0])
            want = _HEADER.get(name)
            if want is None:
                text = message
            else:
                text = expected_one_of([want], header[name]) if name in header else f"required; write {name}: {want}"
            draft.problems.append(document.problem(path, text))


def _items(document: Document, name: str, value: object, model: type[M], draft: Draft) -> Iterator[Located[M]]:
    if not isinstance(value, list):
        draft.problems.append(document.problem((name,), f"expected a list, got {described(value)}"))
        return
    for index, item in enumerate(value):
        if isinstance(item, dict):
            _note_names(document, (name, index), item, draft)
        checked = _checked(document, (name, index), item, model, draft)
        if checked is not None:
            yield checked


def _note_names(document: Document, path: FieldPath, item: dict[str, Any], draft: Draft) -> None:
    """Record an item's name and what it refers to, even if it is invalid: other items are checked against them."""
    name = item.get("name")
    if isinstance(name, str):
        draft.names[str(path[0])].append(Located(name, document, (*path, "name")))
    above = {"teams": "department", "departments": "parent"}.get(str(path[0]), "")
    if isinstance(item.get(above), str):
        draft.department_references.append(Located(item[above], document, (*path, above)))
    if path[0] == "pools":
        draft.references += _texts(document, (*path, "teams"), item.get("teams"))
    elif path[0] == "teams" and isinstance(name, str):
        claimed = _texts(document, (*path, "namespaces"), item.get("namespaces"))
        draft.claims += (NamespaceClaim(name, namespace) for namespace in claimed)


def _texts(document: Document, path: FieldPath, value: object) -> Iterator[Located[str]]:
    if isinstance(value, list):
        for index, text in enumerate(value):
            if isinstance(text, str):
                yield Located(text, document, (*path, index))


def _checked(document: Document, path: FieldPath, value: object, model: type[M], draft: Draft) -> Located[M] | None:
    # An empty `teams:` would open a pool to every team, an empty `limit:` remove a limit: an error, not a default.
    empty = frozenset(_empty_fields(value))
    draft.problems += (document.problem((*path, *e), "has no value; write one, or leave the field out") for e in empty)
    try:
        checked = model.model_validate(value)
    except ValidationError as error:
        found = ((below, text) for below, text in field_errors(error, model) if below not in empty)
        draft.problems += (document.problem((*path, *below), text) for below, text in found)
        return None
    return Located(checked, document, path)


def _empty_fields(value: object) -> Iterator[FieldPath]:
    if isinstance(value, dict):
        for name, item in value.items():
            if item is None:
                yield (name,)
            else:
                yield from ((name, *below) for below in _empty_fields(item))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ((index, *below) for below in _empty_fields(item))


def _read_resources(document: Document, value: object, draft: Draft) -> None:
    if not isinstance(value, dict):
        draft.problems.append(document.problem(("resources",), f"expected a mapping, got {described(value)}"))
        return
    for name, item in value.items():
        path = ("resources", name)
        try:
            resource_name(name)
        except ValueError as error:
            draft.problems.append(document.problem(path, str(error)))
        checked = _checked(document, path, item, schema.Resource, draft)
        if checked is not None and checked.value.per_replica and name != DEVICE:
            text = f"only {DEVICE} is counted by replicas; weigh replicas under a name of their own by perGpu"
            draft.problems.append(document.problem((*path, "perReplica"), text))
        if name in draft.resources:
            draft.problems.append(document.problem(path, _twice(name, draft.resources[name].place)))
        elif checked is not None:
            draft.resources[name] = checked


def _read_section(document: Document, name: str, value: object, draft: Draft) -> None:
    checked = _checked(document, (name,), value, _SECTIONS[name], draft)
    if name in draft.sections:
        place = draft.sections[name].place
        draft.problems.append(
            document.problem((name,), f"already set at {place}; a section may be set in one file only")
        )
    elif checked is not None:
        draft.sections[name] = checked


def _repeated(named: Iterable[Located[str]]) -> Iterator[Problem]:
    first: dict[str, Located[str]] = {}
    for name in named:
        if name.value in first:
            yield name.problem(_twice(name.value, first[name.value].place))
        else:
            first[name.value] = name


def _claimed_twice(claims: list[NamespaceClaim]) -> Iterator[Problem]:
    first: dict[str, NamespaceClaim] = {}
    for claim in claims:
        before = first.setdefault(claim.namespace.value, claim)
        if before is not claim:
            where = f'"{claim.namespace.value}" already belongs to team "{before.team}" at {before.namespace.place}'
            yield claim.namespace.problem(f"namespace {where}; keep it in one team")


def _unknown_teams(draft: Draft) -> Iterator[Problem]:
    known = sorted({name.value for name in draft.names["teams"]})
    for reference in draft.references:
        if reference.value not in known:
            expected = expected_one_of(known, reference.value) if known else "no team is declared"
            yield reference.problem(f"unknown team: {expected}")


def _twice(name: str, place: str) -> str:
    return f'"{name}" is already declared at {place}; keep one'
