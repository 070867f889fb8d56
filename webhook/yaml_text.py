"""YAML in and out with lines.

Scalars of manifests as kubectl reads them: YAML 1.1 by sigs.k8s.io/yaml, then JSON. Measured with kubectl 1.37.

`010` is 8, `0x4` is 4, `1_0` is 10, `on` and `y` are true, and `2.0` is the integer 2.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import yaml

from webhook.core.model.amounts import escaped

_STR: Final = "tag:yaml.org,2002:str"
_TAGS: Final[dict[str, type | tuple[type, ...]]] = {
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": (int, float),
    "tag:yaml.org,2002:bool": bool,
    "tag:yaml.org,2002:null": type(None),
}
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "on", "On", "ON", "y", "Y", "yes", "Yes", "YES"), True),
    **dict.fromkeys(("false", "False", "FALSE", "off", "Off", "OFF", "n", "N", "no", "No", "NO"), False),
    **dict.fromkeys((f"{sign}.{word}" for sign in ("", "+") for word in ("inf", "Inf", "INF")), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_NUMBERS_START: Final = frozenset("-+.0123456789")
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]{1,64})|0[bB](?P<bin>[01]{1,64})|0[oO]?(?P<oct>[0-7]{1,64})"
    r"|(?P<dec>0|[1-9][0-9]{0,63}))"
)
_BASES: Final = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+)?")
_INT64: Final = 2**63
_UINT64: Final = 2**64


def resolved(text: str) -> object:
    """Return the value of a scalar without quotes and tag: None, a boolean, a number or the text itself."""
    return _number(text) if text[:1] in _NUMBERS_START else _WORDS.get(text, text)


def tagged(text: str, tag: str) -> object:
    """Return the value of a scalar with a tag of YAML; raises ValueError if it has another type, or for other tags."""
    if tag == _STR:
        return text
    if tag not in _TAGS:
        raise ValueError(f"could not determine a constructor for the tag {tag}")
    value = resolved(text)
    is_boolean = isinstance(value, bool)
    if not isinstance(value, _TAGS[tag]) or (is_boolean and not tag.endswith(":bool")):
        raise ValueError(f"cannot decode {text!r} as {tag.rpartition(':')[2]}")
    return value


def key_text(value: object) -> str | None:
    """Return a key as it is in JSON, where each key is text; None if it has no text there."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case int():
            return str(value)
    return None


def _number(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("."):
        return _float(text.replace("_", "")) if _FRACTION.fullmatch(text) else text
    plain = text.replace("_", "")
    found = _INTEGER.fullmatch(plain)
    if found is not None:
        base = found.lastgroup or "dec"
        value = int(found["sign"] + found[base], _BASES[base])
        if -_INT64 <= value < _INT64:
            return value
        if _INT64 <= value < _UINT64:
            return float(value)  # JSON's readers in Kubernetes take integers of 64 bits with a sign
    value_or_text = _float(plain) if _FLOAT.fullmatch(plain) else plain
    return text if isinstance(value_or_text, str) else value_or_text


def _float(text: str) -> int | float | str:
    value = float(text)
    if math.isinf(value):
        return text  # out of the range of 64 bits
    return int(value) if value.is_integer() and abs(value) < _INT64 else value


# YAML documents to plain values that remember their lines. No opinion on what the values mean.
#
# Manifests and policy files are read here, each with the bounds of its `Reader`. Manifests are read as kubectl reads
# them; policies override the scalars with those of YAML 1.2, where `mode: off` is text.
#
# PyYAML's own composer recurses in C and crashes the process at some 10,000 levels; here the parser's events are taken
# and a list is the stack, which also takes a third of the time.


_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where PyYAML has libyaml
_COLLECTIONS: Final = frozenset({None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq"))})


Lines = dict[tuple[int, str | int], int]
"""On which line a key or element begins, by the identity of the mapping or list that holds it."""


class DocumentError(Exception):
    """The text is not YAML that can be read; says where and what is wrong. `problem` leaves out the place."""

    def __init__(self, text: str, *, problem: str, line: int = 1) -> None:
        super().__init__(text)
        self.problem = problem
        self.line = line

    @classmethod
    def at(cls, event: yaml.Event, problem: str) -> "DocumentError":
        """Make an error of the place of an event."""
        mark = event.start_mark
        if mark is None:
            return cls(problem, problem=problem)
        return cls(
            f"{problem}, in line {mark.line + 1}, column {mark.column + 1}", problem=problem, line=line_of(event)
        )


class BoundError(DocumentError):
    """The text is YAML that goes beyond a bound."""


@dataclass(slots=True)
class Open:
    """A mapping or list that has begun; `key` waits for its value, `size` counts the values inside."""

    begun: yaml.CollectionStartEvent
    value: dict[str, Any] | list[Any]
    key: str | None = None
    is_left_out: bool = False
    """Whether the value of the current key is read and dropped."""
    size: int = 1
    merged: list[dict[str, Any]] = field(default_factory=list)


class Reader:
    """Builds the value of one document, event by event, as manifests are written: the last of equal keys wins.

    Methods without an underscore say what a kind of document may hold, for subclasses to override.
    """

    most_levels: ClassVar[int] = 100
    """A pod is some 15 deep; msgspec, which takes the values over, recurses too."""
    most_repeated: ClassVar[int] = 1_000_000
    """Values that aliases may add: a kilobyte of nested aliases would make billions of them."""

    def __init__(self, lines: Lines | None) -> None:
        self.root: object = None
        self.line = 0
        """Where the root begins."""
        self.open: list[Open] = []
        self._lines = lines
        self._anchors: dict[str, tuple[object, int]] = {}
        self._repeated = 0

    def take(self, event: yaml.Event) -> None:
        """Take in the next event."""
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event)
            if event.anchor:
                self._anchors[event.anchor] = (value, 1)
            self.put(event, value, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end()
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)

    def scalar(self, event: yaml.ScalarEvent) -> object:
        """Return the value of a scalar."""
        text: str = event.value
        if event.tag == "!":
            return text
        if event.tag is not None:
            try:
                return tagged(text, event.tag)
            except ValueError as error:
                raise DocumentError.at(event, str(error)) from error
        return self.plain(text, event) if event.implicit[0] else text  # others have quotes

    def plain(self, text: str, event: yaml.ScalarEvent) -> object:
        """Return the value of a scalar without quotes and tag."""
        value = resolved(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise DocumentError.at(event, f"{text} is no value of JSON")
        return value

    def check_collection(self, event: yaml.CollectionStartEvent) -> None:
        """Refuse a mapping or list that cannot be read."""
        if event.tag not in _COLLECTIONS:
            raise DocumentError.at(event, f"could not determine a constructor for the tag {event.tag}")

    def unknown_alias(self, event: yaml.AliasEvent) -> object:
        """Return what stands for an alias whose anchor is not there, or not complete yet."""
        raise DocumentError.at(event, f"found undefined alias {event.anchor}, or one inside what it stands for")

    def key(self, event: yaml.Event, value: object) -> str | None:
        """Return the next key of the innermost mapping, or None to leave out its value, too."""
        text = key_text(value)
        if text is None:
            raise DocumentError.at(event, "a key must be text")
        return text

    def put(self, event: yaml.Event, value: object, size: int) -> None:
        """Put a value where it belongs: it may be a key, the value of a key, an element, or the whole document."""
        if not self.open:
            self.root, self.line = value, line_of(event)
            return
        parent = self.open[-1]
        parent.size += size
        holder, key = parent.value, parent.key
        if isinstance(holder, list):
            if self._lines is not None:
                self._lines[id(holder), len(holder)] = line_of(event)
            holder.append(value)
        elif parent.is_left_out:
            parent.is_left_out = False
        elif key is None:
            parent.key = self.key(event, value)
            parent.is_left_out = parent.key is None
            if self._lines is not None and parent.key is not None:
                self._lines[id(holder), parent.key] = line_of(event)
        else:
            self._set(parent, key, value)
            parent.key = None

    def _set(self, parent: Open, key: str, value: object) -> None:
        if key == "<<" and isinstance(value, dict | list):
            parent.merged += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
        else:
            parent.value[key] = value  # type: ignore[call-overload]  # a mapping: lists have no keys

    def _repeat(self, event: yaml.AliasEvent) -> None:
        value, size = self._anchors.get(str(event.anchor)) or (self.unknown_alias(event), 1)
        self._repeated += size
        if self._repeated > self.most_repeated:
            raise BoundError.at(event, f"aliases repeat more than {self.most_repeated:,} values; write them out")
        self.put(event, value, size)

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        self.check_collection(event)
        if len(self.open) >= self.most_levels:
            raise BoundError.at(event, f"nested more than {self.most_levels} levels deep")
        self.open.append(Open(event, {} if isinstance(event, yaml.MappingStartEvent) else []))

    def _end(self) -> None:
        done = self.open.pop()
        if isinstance(done.value, dict):
            for mapping in done.merged:
                done.value.update({key: value for key, value in mapping.items() if key not in done.value})
        if done.begun.anchor:
            self._anchors[done.begun.anchor] = (done.value, done.size)
        self.put(done.begun, done.value, done.size)


R = TypeVar("R", bound=Reader)


def read(content: bytes, new_reader: Callable[[], R]) -> Iterator[R]:
    """Yield the reader of each document, at its end. Raises DocumentError."""
    reader = new_reader()
    try:
        for event in yaml.parse(content, Loader=_PARSER):
            if isinstance(event, yaml.DocumentStartEvent):
                reader = new_reader()
            elif isinstance(event, yaml.DocumentEndEvent):
                yield reader
            else:
                reader.take(event)
    except yaml.YAMLError as error:
        raise _translated(error, content) from error


def read_documents(content: bytes, *, lines: Lines | None = None) -> Iterator[object]:
    """Yield the value of each document, and note where its parts are in `lines`. Raises DocumentError."""
    return (reader.root for reader in read(content, lambda: Reader(lines)))


def line_of(event: yaml.Event) -> int:
    """Return the line on which an event begins, from 1."""
    return 0 if event.start_mark is None else int(event.start_mark.line) + 1


def _translated(error: yaml.YAMLError, content: bytes) -> DocumentError:
    text = " ".join(str(error).split())
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        position = getattr(error, "position", 0)  # of a ReaderError, in bytes with libyaml, in characters without
        line = content.count(b"\n", 0, position) + 1
        return DocumentError(text, problem=getattr(error, "reason", text), line=line)
    line = min(mark.line + 1, len(content.splitlines()) or 1)  # libyaml puts the end of a file a line below
    return DocumentError(text, problem=" ".join(filter(None, (error.problem, error.context))), line=line)


# YAML for people and for kubectl, in which every text is read back as text by YAML 1.1 and 1.2.


_Base: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # seven times faster where PyYAML has libyaml


class Dumper(_Base):  # type: ignore[misc,valid-type]
    """Quotes what kubectl would take for another value (`y`, `1e3`), and writes repeated parts in full."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if resolved(text) is text else "'"
    if not text.isprintable() and not text.replace("\n", "").isprintable():
        style = '"'  # where it can be escaped
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)
Dumper.ignore_aliases = lambda *_: True  # aliases are hard to read


def to_yaml(*documents: object, width: int = 2**16) -> str:
    """Return plain values as YAML documents, with keys in their order; what is not printable is escaped."""
    text: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=width, allow_unicode=True)
    return escaped(text, escape=lambda odd: f"\\U{ord(odd):08x}")
