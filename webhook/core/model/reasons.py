"""Codes, facts, sentences.

Statements: constant words with facts in their places, and the one renderer that makes text of them.

Rules make statements, and compare and pass on their facts. Text is made where it leaves Fairgate, and no code reads it
back. A place names a fact and how it is written: `{taken:gpus}`. Those who choose names of objects cannot break a line:
each text among the facts is passed through `printable`.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from functools import partial
from string import Formatter
from typing import Any, Final, NamedTuple

from webhook.core.model.amounts import (
    HOST_PORT,
    ResourceName,
    Units,
    Unlimited,
    amount_text,
    duration,
    format_gpus,
    format_limit,
    gpus_text,
    parse_amount,
    place_text,
    plural,
    plural_gpus,
    printable,
)

Facts = Mapping[str, Any]
"""The facts of a statement by name: numbers, texts, amounts, resources, statements, and tuples of these."""

NO_FACTS: Final[Facts] = {}

MAX_DEPTH: Final = 6
MAX_FACTS: Final = 64
"""Statements within statements, and facts in all, of what is read back: anyone may write it on their pods."""


class Resource(NamedTuple):
    """An amount of a resource: written `nvidia.com/gpu 8`, or `memory 64Gi`.

    `beside` is an amount in the same statement that would read the same where both are rounded.
    """

    name: ResourceName
    amount: int
    beside: int | None = None

    @property
    def amount_text(self) -> str:
        """The amount for people."""
        return amount_text(self.name, self.amount, beside=self.beside)


def compared(name: ResourceName, one: int, other: int) -> tuple[Resource, Resource]:
    """Return two amounts of a resource for one statement: where they differ, they read differently."""
    if one == other or amount_text(name, one) != amount_text(name, other):
        return Resource(name, one), Resource(name, other)
    return Resource(name, one, other), Resource(name, other, one)


class Statement(NamedTuple):
    """Words with places for facts. Equal statements say the same."""

    words: str
    facts: Facts = NO_FACTS

    def __hash__(self) -> int:
        return hash(self.words)

    @property
    def text(self) -> str:
        """The statement for people."""
        return render(self.words, self.facts)

    @property
    def kind(self) -> object:
        """What it says without its numbers: the words, and all names, of its own and of the statements in it."""
        return _kind(self)

    def with_facts(self, **facts: object) -> "Statement":
        """Return the same words with some other facts."""
        return Statement(self.words, {**self.facts, **facts})


def render(words: str, facts: Facts) -> str:
    """Return the text of a statement. Raises KeyError where a fact is missing."""
    template, places = _PARSED.get(words) or _parse(words)
    return template % tuple([write(facts[name]) for name, _, write in places]) if places else template


def _plain(value: object) -> str:
    return _WRITTEN_BY_TYPE.get(type(value), _other)(value)


def _other(value: object) -> str:
    return printable(value) if isinstance(value, str) else str(value)


def _resource(resource: Resource) -> str:
    if resource.name.startswith(HOST_PORT):
        return resource.name
    return f"{printable(resource.name)} {resource.amount_text}"


_WRITTEN_BY_TYPE: Final[Mapping[type, Callable[[Any], str]]] = {
    str: printable,
    int: str,
    Statement: lambda said: render(*said),
    Resource: _resource,
    tuple: lambda values: ", ".join([_plain(value) for value in values]),
}


def _joined(joint: str) -> Callable[[tuple[object, ...]], str]:
    return lambda values: joint.join(map(_plain, values))


_WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {
    "": _plain,
    "gpus": gpus_text,
    "GPUs": plural_gpus,
    "exact": format_gpus,
    "limit": format_limit,
    "place": place_text,
    "duration": duration,
    "quoted": repr,
    "bare": lambda resource: resource.amount_text,
    "and": _joined(" and "),
    ";": _joined("; "),
    ",": "{:,}".format,
}
"""How a fact is written by what follows its name. Any other word is a noun, which is counted: `{nodes:node}`."""

_AMOUNTS: Final = frozenset({"gpus", "GPUs", "exact", "limit"})


class _Place(NamedTuple):
    """A place in words: the name of the fact there, how it is written, and what writes it."""

    name: str
    how: str
    write: Callable[[Any], str]


class _Parsed(NamedTuple):
    """Words as a template for `%`, and their places."""

    template: str
    places: tuple[_Place, ...]


class _ReadWords(str):
    """Words that were read back: anyone may have written them, so they are parsed each time, and never kept."""

    __slots__ = ()


_PARSED: Final[dict[str, _Parsed]] = {}
"""The parsed words of the code, which are constants."""


def _parse(words: str) -> _Parsed:
    template, places = "", []
    for literal, name, how, _ in Formatter().parse(words):
        template += literal
        if name is not None:
            template += "\0"
            places.append(_Place(name, how or "", _WRITTEN.get(how or "") or partial(plural, noun=how or "")))
    template = template.replace("%", "%%").replace("\0", "%s") if places else template
    parsed = _Parsed(template, tuple(places))
    if not isinstance(words, _ReadWords):
        _PARSED[words] = parsed
    return parsed


def places_of(words: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the facts that words have places for, and how each is written."""
    return ((place.name, place.how) for place in (_PARSED.get(words) or _parse(words)).places)


def _kind(value: object) -> object:
    if isinstance(value, Statement):
        return value.words, tuple([(name, _kind(fact)) for name, fact in sorted(value.facts.items())])
    if isinstance(value, Resource):
        return value.name
    if isinstance(value, tuple):
        return tuple(map(_kind, value))
    return value if isinstance(value, str) else None


def facts_json(statement: Statement) -> dict[str, Any]:
    """Return the facts for JSON: amounts of GPUs as text, such as "2.5", statements as their own facts."""
    return _encoded_facts(statement, facts_json)


def statement_json(statement: Statement) -> dict[str, Any]:
    """Return a statement for JSON, which `read_statement` reads back."""
    encoded: dict[str, Any] = {"words": str(statement.words)}
    if statement.facts:
        encoded["facts"] = _encoded_facts(statement, statement_json)
    return encoded


def _encoded_facts(statement: Statement, nested: Callable[[Statement], dict[str, Any]]) -> dict[str, Any]:
    how = dict(places_of(statement.words))
    return {name: _encoded(value, how.get(name, ""), nested) for name, value in statement.facts.items()}


def _encoded(value: object, how: str, nested: Callable[[Statement], dict[str, Any]]) -> object:
    if isinstance(value, Statement):
        return nested(value)
    if isinstance(value, Resource):
        beside = {} if value.beside is None else {"beside": value.beside}
        return {"resource": value.name, "amount": value.amount, **beside}
    if isinstance(value, tuple):
        return [_encoded(each, "", nested) for each in value]
    if isinstance(value, Unlimited):
        return value.value
    return format_gpus(value) if how in _AMOUNTS and isinstance(value, int | Fraction) else value


def read_statement(data: object) -> Statement | None:
    """Return the statement of `statement_json`; None where that is something else, or too much of it."""
    try:
        return _Reader().statement(data, MAX_DEPTH)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


class _Reader:
    """Reads one statement. Raises ValueError, TypeError or KeyError where it is not one."""

    def __init__(self) -> None:
        self._left = MAX_FACTS

    def statement(self, data: object, depth: int) -> Statement:
        if not isinstance(data, dict) or not isinstance(words := data["words"], str) or not depth:
            raise ValueError("not a statement")
        facts = data.get("facts", {})
        if not isinstance(facts, dict):
            raise TypeError("facts are not by name")
        words = _ReadWords(words)
        places = list(places_of(words))
        how = dict(places)
        if len(how) != len(places) or not words.isprintable():  # a fact in many places would grow with each level
            raise ValueError("not the words of a statement")
        found = Statement(
            words, {name: self._fact(value, how.get(name, ""), depth - 1) for name, value in facts.items()}
        )
        render(*found)  # what cannot be written is not a statement
        return found

    def _fact(self, value: object, how: str, depth: int) -> object:
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many facts")
        if isinstance(value, list):
            return tuple([self._fact(each, "", depth) for each in value])
        if isinstance(value, dict):
            if "words" in value:
                return self.statement(value, depth)
            beside = value.get("beside")
            name, amount = ResourceName(str(value["resource"])), int(value["amount"])
            return Resource(name, amount, None if beside is None else int(beside))
        if how in _AMOUNTS:
            return _limit(str(value))
        if isinstance(value, str | int):
            return value
        raise TypeError("not a fact")


def _limit(text: str) -> Units | Unlimited:
    return Unlimited.UNLIMITED if text == Unlimited.UNLIMITED.value else parse_amount(text)


# Reasons: stable codes with numbers and advice. cli/codes.json has cause and remedy of each.


class Code(StrEnum):
    """The stable names of all outcomes, warnings included."""

    # limits: text starts with "exceeded quota:", on which Argo, Flyte and others retry
    TEAM_LIMIT_EXCEEDED = "TeamLimitExceeded"
    DEPARTMENT_LIMIT_EXCEEDED = "DepartmentLimitExceeded"
    MODEL_LIMIT_EXCEEDED = "ModelLimitExceeded"
    POD_LIMIT_EXCEEDED = "PodLimitExceeded"
    USER_LIMIT_EXCEEDED = "UserLimitExceeded"
    GUARANTEED_SHARE_USED = "GuaranteedShareUsed"
    QUEUE_FULL = "QueueFull"
    TOO_MANY_FORCE_DELETED = "TooManyForceDeleted"
    # other refusals
    UNKNOWN_TEAM = "UnknownTeam"
    INVALID_REQUEST = "InvalidRequest"
    TOO_LARGE = "TooLarge"
    UNKNOWN_GPU_RESOURCE = "UnknownGpuResource"
    NO_POOL_ALLOWED = "NoPoolAllowed"
    UNKNOWN_POOL = "UnknownPool"
    POOL_FULL = "PoolFull"
    POOL_UNFIT = "PoolUnfit"
    NEVER_FITS = "NeverFits"  # a warning where it is not certain
    PROTECTED_KEY_CHANGED = "ProtectedKeyChanged"
    HELD_ROOM = "HeldRoom"
    TENANCY_CHANGED = "TenancyChanged"
    UNCOUNTED_DEVICE = "UncountedDevice"
    GRACE_PERIOD_TOO_LONG = "GracePeriodTooLong"
    ALREADY_EXISTS = "AlreadyExists"
    RESOURCE_QUOTA_EXCEEDED = "ResourceQuotaExceeded"
    MUTATION_ALTERED = "MutationAltered"
    CLAIM_CHANGED = "ClaimChanged"
    # retried by the API server's clients, invisible to the user
    MUTATION_MISSING = "MutationMissing"
    RACE_LOST = "RaceLost"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    LEDGER_FULL = "LedgerFull"
    PRIORITY_CLASS_UNKNOWN = "PriorityClassUnknown"
    CLAIM_UNKNOWN = "ClaimUnknown"
    # admitted
    WITHIN_SHARE = "WithinShare"
    BORROWS = "Borrows"
    BORROWS_BY_CHOICE = "BorrowsByChoice"
    BACKFILLS = "Backfills"
    # waiting in the queue
    WAITS_FOR_LIMIT = "WaitsForLimit"
    WAITS_FOR_BORROWERS = "WaitsForBorrowers"
    WAITS_FOR_ROOM = "WaitsForRoom"
    WAITS_IN_LINE = "WaitsInLine"
    WAITS_FOR_GATE = "WaitsForGate"
    WAITS_FOR_GANG = "WaitsForGang"
    # not decided by Fairgate
    NO_GPU = "NoGpu"
    EXEMPT = "Exempt"
    COUNTED_ONLY = "CountedOnly"
    CLAIM_COVERED = "ClaimCovered"
    SENT_TO_POOL = "SentToPool"
    NOT_A_CREATE = "NotACreate"
    NOT_ENFORCED = "NotEnforced"
    ALREADY_DECIDED = "AlreadyDecided"
    # warnings
    NO_ROOM_NOW = "NoRoomNow"
    ANY_MODEL = "AnyModel"
    UNKNOWN_USER = "UnknownUser"
    TOPOLOGY_IGNORED = "TopologyIgnored"
    GANG_IGNORED = "GangIgnored"
    RUN_TIME_IGNORED = "RunTimeIgnored"
    MINIMUM_IGNORED = "MinimumIgnored"
    # of Jobs, and of workloads that fail by evictions or by waiting
    GANG_MARKED = "GangMarked"
    RUN_TIME_COPIED = "RunTimeCopied"
    MINIMUM_COPIED = "MinimumCopied"
    EVICTIONS_IGNORED = "EvictionsIgnored"
    EVICTIONS_COUNT = "EvictionsCount"
    DEADLINE_IN_LINE = "DeadlineInLine"
    # of whole workloads
    WORKLOAD_FITS = "WorkloadFits"
    OPEN_COUNT = "OpenCount"
    # of manifests: what a review cannot judge
    UNREADABLE = "Unreadable"
    UNKNOWN_KIND = "UnknownKind"


# families of codes: a new code is added here as well where it is of one
LIMITS: Final = frozenset(
    {
        Code.TEAM_LIMIT_EXCEEDED,
        Code.DEPARTMENT_LIMIT_EXCEEDED,
        Code.MODEL_LIMIT_EXCEEDED,
        Code.USER_LIMIT_EXCEEDED,
        Code.GUARANTEED_SHARE_USED,
    }
)
"""The codes of limits that other pods use up."""
LIMIT_CODES: Final = LIMITS | {Code.POD_LIMIT_EXCEEDED, Code.QUEUE_FULL, Code.TOO_MANY_FORCE_DELETED}
"""The codes of all limits: their texts have the prefix on which controllers retry."""
NO_ROOM: Final = frozenset({Code.NO_ROOM_NOW, Code.POOL_FULL})
"""The codes of nodes that other pods use up."""
LEVELS: Final = frozenset({Code.TEAM_LIMIT_EXCEEDED, Code.DEPARTMENT_LIMIT_EXCEEDED})
"""The codes of limits under which reclaim makes room."""
WAITING: Final = frozenset(
    {
        Code.WAITS_FOR_LIMIT,
        Code.WAITS_FOR_BORROWERS,
        Code.WAITS_FOR_ROOM,
        Code.WAITS_IN_LINE,
        Code.WAITS_FOR_GATE,
        Code.WAITS_FOR_GANG,
    }
)
"""The codes of pods that wait in the queue."""


class Reason(NamedTuple):
    """One cause in three parts: what was requested, what allows how much and what is used, what to do next.

    A code with a statement of it (webhook/core/model/reasons.py): constant words, and the facts in their places.
    """

    code: Code
    words: str
    facts: Facts = NO_FACTS

    def __hash__(self) -> int:
        return hash((self.code, self.words))

    @property
    def statement(self) -> Statement:
        """What it says."""
        return Statement(self.words, self.facts)

    @property
    def text(self) -> str:
        """What it says, for people."""
        return render(self.words, self.facts)


def refusal_text(reasons: tuple[Reason, ...]) -> str:
    """Join the reasons of a refusal; limits come first, after the prefix that retrying controllers match."""
    limits = [r for r in reasons if r.code in LIMIT_CODES]
    others = [r for r in reasons if r.code not in LIMIT_CODES]
    text = "; ".join(f"{r.text} ({r.code})" for r in limits + others)
    return f"exceeded quota: {text}" if limits else text


def waits_for(code: Code, cause: Statement, *, place: int = 0) -> Reason:
    """Return the reason of a pod that waits in the queue for something; `place` is 0 where it is left out."""
    if not place:
        return Reason(code, "waits: {cause}", {"cause": cause})
    return Reason(code, "waits: {cause}; {place:place}", {"cause": cause, "place": place})


def cause_of(reason: Reason) -> Statement:
    """Return for what a pod waits, without its place in the queue; of any other reason all that it says."""
    cause = reason.facts.get("cause")
    return cause if isinstance(cause, Statement) else reason.statement
