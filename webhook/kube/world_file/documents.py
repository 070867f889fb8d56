"""YAML documents to plain values, from the parser's events. No opinion on what the values mean.

PyYAML's own composer recurses in C and crashes the process at some 20,000 levels; here a list is the stack, which also
takes a third of the time. Scalars follow YAML 1.2's core schema, as in policy files: `on` is text, not True.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

MOST_LEVELS: Final = 100
"""A pod is some 15 deep; msgspec, which takes the values over, recurses too."""

MOST_REPEATED: Final = 1_000_000
"""Values that aliases may add: a kilobyte of nested aliases would make billions of them."""

_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where PyYAML has libyaml

_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?")
_NUMBERS_START: Final = frozenset("-+.0123456789")
_LONGEST_NUMBER: Final = 32
_TAGS: Final = frozenset({None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq"))})


Lines = dict[tuple[int, str | int], int]
"""On which line a key or element begins, by the identity of the mapping or list that holds it."""


class DocumentError(Exception):
    """The text is not YAML that can be read; says where and what is wrong. `problem` leaves out the place."""

    def __init__(self, text: str, *, problem: str, line: int = 1) -> None:
        super().__init__(text)
        self.problem = problem
        self.line = line


@dataclass(slots=True)
class _Open:
    """A mapping or list that has begun; `key` waits for its value, `size` counts the values inside."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    key: str | None = None
    size: int = 1
    merged: list[dict[str, Any]] = field(default_factory=list)


def read_documents(content: bytes, *, lines: Lines | None = None) -> Iterator[object]:
    """Yield the value of each document, and note where its parts are in `lines`. Raises DocumentError."""
    reader = _Reader(lines)
    try:
        for event in yaml.parse(content, Loader=_PARSER):
            if isinstance(event, yaml.DocumentStartEvent):
                reader = _Reader(lines)
            elif isinstance(event, yaml.DocumentEndEvent):
                yield reader.root
            else:
                reader.take(event)
    except yaml.YAMLError as error:
        raise _translated(error) from error


def _translated(error: yaml.YAMLError) -> DocumentError:
    text = " ".join(str(error).split())
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return DocumentError(text, problem=getattr(error, "reason", text))
    return DocumentError(text, problem=" ".join(filter(None, (error.problem, error.context))), line=mark.line + 1)


class _Reader:
    """Builds the value of one document, event by event."""

    def __init__(self, lines: Lines | None) -> None:
        self.root: object = None
        self._lines = lines
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._repeated = 0

    def take(self, event: yaml.Event) -> None:
        """Take in the next event."""
        if self._lines is not None:
            self._note_line(self._lines, event)
        if isinstance(event, yaml.ScalarEvent):
            value = _plain(event.value) if event.implicit[0] else event.value
            if event.tag not in _TAGS:
                raise _error(event, f"could not determine a constructor for the tag {event.tag}")
            if event.anchor:
                self._anchors[event.anchor] = (value, 1)
            self._put(event, value, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)

    def _note_line(self, lines: Lines, event: yaml.Event) -> None:
        """Note where a key or an element begins; what an event ends began before."""
        mark = event.start_mark
        if not self._open or mark is None or isinstance(event, yaml.CollectionEndEvent):
            return
        parent = self._open[-1]
        if isinstance(parent.value, list):
            lines[id(parent.value), len(parent.value)] = mark.line + 1
        elif parent.key is None and isinstance(event, yaml.ScalarEvent):
            lines[id(parent.value), event.value] = mark.line + 1

    def _repeat(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise _error(event, f"found undefined alias {event.anchor}, or one inside what it stands for")
        value, size = self._anchors[event.anchor]
        self._repeated += size
        if self._repeated > MOST_REPEATED:
            raise _error(event, f"aliases repeat more than {MOST_REPEATED:,} values; write them out")
        self._put(event, value, size)

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag not in _TAGS:
            raise _error(event, f"could not determine a constructor for the tag {event.tag}")
        if len(self._open) >= MOST_LEVELS:
            raise _error(event, f"nested more than {MOST_LEVELS} levels deep")
        self._open.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

    def _end(self, event: yaml.Event) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            for mapping in done.merged:
                done.value.update({key: value for key, value in mapping.items() if key not in done.value})
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.size)
        self._put(event, done.value, done.size)

    def _put(self, event: yaml.Event, value: object, size: int) -> None:
        """Put a value where it belongs: it may be a key, the value of a key, an element, or the whole document."""
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        parent.size += size
        holder, key = parent.value, parent.key
        if isinstance(holder, list):
            holder.append(value)
            return
        if key is None:
            if not isinstance(event, yaml.ScalarEvent):
                raise _error(event, "a key must be text")
            parent.key = event.value
            return
        if key == "<<" and isinstance(value, dict | list):
            parent.merged += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
        else:
            holder[key] = value
        parent.key = None


def _plain(text: str) -> object:
    """Read a scalar without quotes."""
    if text[:1] in _NUMBERS_START:
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text) if len(text) <= _LONGEST_NUMBER and _DECIMAL.fullmatch(text) else text
    return _WORDS.get(text, text)


def _error(event: yaml.Event, what: str) -> DocumentError:
    mark = event.start_mark
    if mark is None:
        return DocumentError(what, problem=what)
    line = mark.line + 1
    return DocumentError(f"{what}, in line {line}, column {mark.column + 1}", problem=what, line=line)
