"""YAML documents to plain values that remember their lines. No opinion on what the values mean.

Manifests and policy files are read here, each with the bounds of its `Reader`. Manifests are read as kubectl reads
them; policies override the scalars with those of YAML 1.2, where `mode: off` is text.

PyYAML's own composer recurses in C and crashes the process at some 10,000 levels; here the parser's events are taken
and a list is the stack, which also takes a third of the time.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import yaml

from webhook.yaml_scalars import key_text, resolved, tagged

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
