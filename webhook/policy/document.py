"""Policy files to documents that know the lines of their fields, and everything in them that no policy may hold.

Scalars are those of YAML 1.2's core schema: in YAML 1.1, by which manifests are read, `mode: off` is False.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import yaml

from webhook.policy.problems import Path, Problem, described, path_text, shortened
from webhook.policy.source import MAX_BYTES, Files
from webhook.yaml_reader import BoundError, DocumentError, Lines, Open, Reader, line_of, read

MAX_DEPTH: Final = 32  # a policy is 8 deep
MAX_VALUES: Final = 100_000  # aliases included: a kilobyte of nested aliases makes billions
_TAG: Final = "tag:yaml.org,2002:"
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS_START: Final = frozenset("-+.0123456789")
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL: Final = re.compile(
    r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)

_OpenPath = tuple[str | int | None, ...]
"""A path with None where a key is being read, or where what comes is left out."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its value, and the lines of its parts."""

    file: str
    value: object
    first_line: int
    lines: Lines

    def line(self, path: Path) -> int:
        """Find the line of a field, or of the deepest part of its path that is there."""
        value, line = self.value, self.first_line
        for part in path:
            if isinstance(value, list) and isinstance(part, int) and part < len(value):
                line, value = self.lines[id(value), part], value[part]
            elif isinstance(value, dict):
                if part not in value:
                    break
                line, value = self.lines[id(value), part], value[part]
        return line

    def problem(self, path: Path, message: str) -> Problem:
        """Return a problem of the field at this path."""
        return Problem(self.file, self.line(path), path_text(path), message)

    def place(self, path: Path) -> str:
        """Return FILE:LINE of a field, for another problem's message."""
        return f"{self.file}:{self.line(path)}"


@dataclass(slots=True)
class ParsedFiles:
    """All documents of the files, and the problems of those that could not be parsed."""

    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_documents(files: Files) -> ParsedFiles:
    """Parse every file up to its first syntax error; empty documents are skipped."""
    parsed = ParsedFiles()
    for file, content in files.items():
        problem = _unreadable(file, content)
        if problem is not None:
            parsed.problems.append(problem)
            continue
        try:
            for reader in read(content, partial(_PolicyReader, file, parsed.problems)):
                if reader.root is not None:
                    parsed.documents.append(Document(file, reader.root, reader.line, reader.lines))
        except BoundError as error:
            parsed.problems.append(Problem(file, error.line, "", error.problem))
        except DocumentError as error:
            parsed.problems.append(Problem(file, error.line, "", f"not valid YAML: {error.problem}"))
    return parsed


def _unreadable(file: str, content: bytes) -> Problem | None:
    if len(content) > MAX_BYTES:
        return Problem(file, 0, "", "larger than 1 MiB, which is more than a ConfigMap holds; split it")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Problem(file, line, "", f"not UTF-8 text (byte 0x{content[error.start]:02x}); save the file as UTF-8")
    return None


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "str": str,
    "null": lambda _text: None,
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": _float,
}


class _PolicyReader(Reader):
    """Notes what no policy may hold, leaves it out, and reads on."""

    most_levels = MAX_DEPTH

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.lines: Lines = {}
        super().__init__(self.lines)
        self._file = file
        self._problems = problems
        self._values = 0

    def scalar(self, event: yaml.ScalarEvent) -> object:
        try:
            if event.tag in (None, "!"):
                return self.plain(event.value, event) if event.implicit[0] else event.value
            if read_as := _READERS.get(event.tag.removeprefix(_TAG)):
                return read_as(event.value)
        except ValueError:  # an explicit tag such as `!!int x`, or more digits than Python reads
            message = f"expected a number, got {described(event.value)}"
        else:
            message = f"tag {shortened(event.tag)} is not supported; write plain text or a number"
        self._note(event, message, _path(self.open))
        return None

    def plain(self, text: str, event: yaml.ScalarEvent) -> object:  # noqa: ARG002 - of manifests
        if text[:1] not in _NUMBERS_START:
            return _WORDS.get(text, text)
        if _INTEGER.fullmatch(text):
            return int(text)
        return _float(text) if _DECIMAL.fullmatch(text) else text

    def check_collection(self, event: yaml.CollectionStartEvent) -> None:
        """Read on: the tag of a mapping or list changes nothing."""

    def unknown_alias(self, event: yaml.AliasEvent) -> object:
        if all(one.begun.anchor != event.anchor for one in self.open):
            raise DocumentError.at(event, "found undefined alias")
        self._note(event, "an alias of a part that contains it; write it out", _path(self.open))
        return None

    def key(self, event: yaml.Event, value: object) -> str | None:
        path, holder = _path(self.open[:-1]), self.open[-1].value
        if not isinstance(value, str):
            quoting = f'; quote it: "{shortened(event.value)}"' if isinstance(event, yaml.ScalarEvent) else ""
            self._note(event, f"a key must be text{quoting}", path)
        elif value == "<<":
            self._note(event, "merge keys (<<) are not part of YAML 1.2; write the fields out", path)
        elif value in holder:
            message = f"appears twice, first on line {self.lines[id(holder), value]}; keep one"
            self._note(event, message, (*path, value))
        else:
            return value
        return None

    def put(self, event: yaml.Event, value: object, size: int) -> None:
        if None not in _path(self.open[-1:]):  # keys do not count
            self._values += size if isinstance(event, yaml.AliasEvent) else 1
        if self._values > MAX_VALUES:
            raise BoundError.at(event, f"more than {MAX_VALUES:,} values, aliases included; split the file")
        super().put(event, value, size)

    def _note(self, event: yaml.Event, message: str, path: _OpenPath) -> None:
        known = tuple(part for part in path if part is not None)
        if len(known) == len(path):
            self._problems.append(Problem(self._file, line_of(event), path_text(known), message))


def _path(levels: list[Open]) -> _OpenPath:
    """Return the keys and indexes at which these levels are being read."""
    return tuple(len(one.value) if isinstance(one.value, list) else one.key for one in levels)
