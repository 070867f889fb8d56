"""Documents to checked parts: each part on its own, then all of them together. Reports every problem it finds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from webhook.policy import schema
from webhook.policy.document import Document
from webhook.policy.field_errors import choice, explained
from webhook.policy.problems import Path, Problem, described
from webhook.policy.values import resource_name
from webhook.policy.workloads import Workloads

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """A part of the policy and the place it comes from."""

    value: T
    document: Document
    path: Path

    @property
    def place(self) -> str:
        """Name the place for another problem's message."""
        return self.document.place(self.path)

    def problem(self, message: str, *below: str | int) -> Problem:
        """Report a problem of this part, or of a field below it."""
        return self.document.problem((*self.path, *below), message)


@dataclass(frozen=True, slots=True)
class Claim:
    """A namespace, or glob, that a team calls its own."""

    team: str
    namespace: Placed[str]


@dataclass(slots=True)
class Draft:
    """The parts of all documents that are good on their own, and every problem."""

    teams: list[Placed[schema.Team]] = field(default_factory=list)
    pools: list[Placed[schema.Pool]] = field(default_factory=list)
    resources: dict[str, Placed[schema.Resource]] = field(default_factory=dict)
    sections: dict[str, Placed[Any]] = field(default_factory=dict)
    exempt: list[Placed[str]] = field(default_factory=list)
    names: dict[str, list[Placed[str]]] = field(default_factory=lambda: {"teams": [], "pools": []})
    """All teams and pools that are named, those with a problem too: a reference to one is no second problem."""
    claims: list[Claim] = field(default_factory=list)
    references: list[Placed[str]] = field(default_factory=list)
    """Teams that pools name."""
    problems: list[Problem] = field(default_factory=list)

    def section(self, name: str, default: M) -> M:
        """Return a section that may be set once, or its default."""
        found = self.sections.get(name)
        return default if found is None else found.value


def draft(documents: Iterable[Document], *, is_complete: bool) -> Draft:
    """Check documents and what they say together.

    `is_complete` is False where a file could not be read: teams may then be missing that are no problem of the pools.
    """
    made = Draft()
    for document in documents:
        _read(document, made)
    for named in (*made.names.values(), made.exempt):
        made.problems += _repeated(named)
    told = {(problem.file, problem.path) for problem in made.problems}
    across = [*_claimed_twice(made.claims), *(_unknown_teams(made) if is_complete else ())]
    made.problems += (problem for problem in across if (problem.file, problem.path) not in told)
    return made


def _read(document: Document, made: Draft) -> None:
    if not isinstance(document.value, dict):
        made.problems.append(
            document.problem((), f"expected a mapping with apiVersion and kind, got {described(document.value)}")
        )
        return
    _check_header(document, document.value, made)
    for name, value in document.value.items():
        match name:
            case "apiVersion" | "kind":
                pass
            case _ if value is None and name in _KNOWN:
                pass  # a section whose content is commented out
            case "teams":
                made.teams += _items(document, name, value, schema.Team, made)
            case "pools":
                made.pools += _items(document, name, value, schema.Pool, made)
            case "resources":
                _read_resources(document, value, made)
            case "exempt":
                exempt = _checked(document, (name,), value, schema.Exempt, made)
                names = exempt.value.namespaces if exempt else []
                path = (name, "namespaces")
                made.exempt += (Placed(text, document, (*path, index)) for index, text in enumerate(names))
            case _ if name in _SECTIONS:
                _read_section(document, name, value, made)


_SECTIONS: dict[str, type[BaseModel]] = {
    "enforce": schema.Enforce,
    "defaults": schema.Defaults,
    "placement": schema.Placement,
    "reclaim": schema.Reclaim,
    "priorityClasses": schema.PriorityClasses,
    "workloads": Workloads,
}
_KNOWN = frozenset(info.alias or name for name, info in schema.PolicyFile.model_fields.items())


def _check_header(document: Document, value: dict[str, object], made: Draft) -> None:
    """Check the outermost fields; what is inside the sections is checked piece by piece, so that good pieces count."""
    header = {name: value[name] for name in value if name not in _KNOWN or name in ("apiVersion", "kind")}
    try:
        schema.PolicyFile.model_validate(header)
    except ValidationError as error:
        for path, message in explained(error, schema.PolicyFile):
            if path[0] in ("apiVersion", "kind"):
                want = schema.API_VERSION if path[0] == "apiVersion" else schema.KIND
                wrong = path[0] in header
                message = choice(header[str(path[0])], [want]) if wrong else f"required; write {path[0]}: {want}"  # noqa: PLW2901
            made.problems.append(document.problem(path, message))


def _items(document: Document, name: str, value: object, model: type[M], made: Draft) -> Iterator[Placed[M]]:
    if not isinstance(value, list):
        made.problems.append(document.problem((name,), f"expected a list, got {described(value)}"))
        return
    for index, item in enumerate(value):
        if isinstance(item, dict):
            _note_names(document, (name, index), item, made)
        checked = _checked(document, (name, index), item, model, made)
        if checked is not None:
            yield checked


def _note_names(document: Document, path: Path, item: dict[str, object], made: Draft) -> None:
    """Note what an item is called and names, whether it is good or not: the others are held against it."""
    name = item.get("name")
    if isinstance(name, str):
        made.names[str(path[0])].append(Placed(name, document, (*path, "name")))
    if path[0] == "pools":
        made.references += _texts(document, (*path, "teams"), item.get("teams"))
    elif isinstance(name, str):
        claimed = _texts(document, (*path, "namespaces"), item.get("namespaces"))
        made.claims += (Claim(name, namespace) for namespace in claimed)


def _texts(document: Document, path: Path, value: object) -> Iterator[Placed[str]]:
    if isinstance(value, list):
        for index, text in enumerate(value):
            if isinstance(text, str):
                yield Placed(text, document, (*path, index))


def _checked(document: Document, path: Path, value: object, model: type[M], made: Draft) -> Placed[M] | None:
    # `teams:` left empty would open a pool to every team, `limit:` lift a limit: likely a slip, so never a default.
    empty = frozenset(_empty_fields(value))
    made.problems += (document.problem((*path, *e), "has no value; write one, or leave the field out") for e in empty)
    try:
        checked = model.model_validate(value)
    except ValidationError as error:
        found = ((below, text) for below, text in explained(error, model) if below not in empty)
        made.problems += (document.problem((*path, *below), text) for below, text in found)
        return None
    return Placed(checked, document, path)


def _empty_fields(value: object) -> Iterator[Path]:
    if isinstance(value, dict):
        for name, item in value.items():
            if item is None:
                yield (name,)
            else:
                yield from ((name, *below) for below in _empty_fields(item))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ((index, *below) for below in _empty_fields(item))


def _read_resources(document: Document, value: object, made: Draft) -> None:
    if not isinstance(value, dict):
        made.problems.append(document.problem(("resources",), f"expected a mapping, got {described(value)}"))
        return
    for name, item in value.items():
        path = ("resources", name)
        try:
            resource_name(name)
        except ValueError as error:
            made.problems.append(document.problem(path, str(error)))
        checked = _checked(document, path, item, schema.Resource, made)
        if name in made.resources:
            made.problems.append(document.problem(path, _twice(name, made.resources[name].place)))
        elif checked is not None:
            made.resources[name] = checked


def _read_section(document: Document, name: str, value: object, made: Draft) -> None:
    checked = _checked(document, (name,), value, _SECTIONS[name], made)
    if name in made.sections:
        place = made.sections[name].place
        made.problems.append(
            document.problem((name,), f"already set at {place}; a section may be set in one file only")
        )
    elif checked is not None:
        made.sections[name] = checked


def _repeated(named: Iterable[Placed[str]]) -> Iterator[Problem]:
    first: dict[str, Placed[str]] = {}
    for name in named:
        if name.value in first:
            yield name.problem(_twice(name.value, first[name.value].place))
        else:
            first[name.value] = name


def _claimed_twice(claims: list[Claim]) -> Iterator[Problem]:
    first: dict[str, Claim] = {}
    for claim in claims:
        before = first.setdefault(claim.namespace.value, claim)
        if before is not claim:
            where = f'"{claim.namespace.value}" already belongs to team "{before.team}" at {before.namespace.place}'
            yield claim.namespace.problem(f"namespace {where}; keep it in one team")


def _unknown_teams(made: Draft) -> Iterator[Problem]:
    known = sorted({name.value for name in made.names["teams"]})
    for reference in made.references:
        if reference.value not in known:
            told = choice(reference.value, known) if known else "no team is declared"
            yield reference.problem(f"unknown team: {told}")


def _twice(name: str, place: str) -> str:
    return f'"{name}" is already declared at {place}; keep one'
