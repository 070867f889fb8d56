"""Statements: constant words with facts in their places, and the one renderer that makes text of them.

Rules make statements, and compare and pass on their facts. Text is made where it leaves Fairgate, and no code reads it
back. A place names a fact and how it is written: `{taken:gpus}`. Those who choose names of objects cannot break a line:
each text among the facts is passed through `printable`.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from string import Formatter
from typing import Any, Final, NamedTuple

from webhook.core.model.amount import Units, Unlimited, format_gpus, format_limit, gpus_text, parse_amount
from webhook.core.model.names import HOST_PORT, ResourceName
from webhook.core.model.text import amount_text, duration, place_text, plural, plural_gpus, printable

Facts = Mapping[str, Any]
"""The facts of a statement by name: numbers, texts, amounts, resources, statements, and tuples of these."""

NO_FACTS: Final[Facts] = {}

MAX_DEPTH: Final = 6
MAX_FACTS: Final = 64
"""Statements within statements, and facts in all, of what is read back: anyone may write it on their pods."""

_UNLIMITED: Final = Unlimited.UNLIMITED


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
    if len(places) == 1:  # calls are what a message costs
        name, _, write = places[0]
        return template % write(facts[name])
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
    return _UNLIMITED if text == _UNLIMITED.value else parse_amount(text)
