"""Files to documents with lines.

Problems of policy files, with file, line and field: what every check reports.
"""

import hashlib
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

import yaml

from webhook.files import InputError
from webhook.yaml_text import BoundError, DocumentError, Lines, Open, Reader, line_of, read

FieldPath = tuple[str | int, ...]
"""Path of a field in its document: field names and list indexes."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct. `line` counts from 1 and is 0 for the whole file; `path` is "" for a whole document."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class PolicyError(InputError):
    """The policy is invalid; has every problem found."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(*map(str, problems))
        self.problems = problems


class PolicyUnreadable(InputError):  # noqa: N818 - the name says what happened; "Error" would add nothing
    """The policy files cannot be read: missing, no permission, or deleted while they were read."""


def path_text(path: FieldPath) -> str:
    """Return a path as the Kubernetes API writes it: `pools[0].nodeSelector[nvidia.com/gpu.product]`."""
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


def described(value: object) -> str:
    """Return a short description of a value in a file."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the word {str(value).lower()}"
        case int() | float():
            return f"the number {shortened(str(value))}"
        case str():
            return f'"{shortened(value)}"'
        case dict():
            return "a mapping"
        case _:
            return "a list"


def shortened(text: str, longest: int = 60) -> str:
    """Return a text on one line, cut to a length that fits a message."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


# Reads the files of a policy folder as bytes.


SUFFIXES: Final = (".yaml", ".yml")
MAX_BYTES: Final = 1024 * 1024  # the limit of a ConfigMap; parsing YAML costs microseconds per byte

Files = Mapping[str, bytes]
"""Contents by displayed name: the path as the caller wrote it, so that editors and terminals can open it."""


def read_files(path: Path) -> Files:
    """Read a folder's policy files in order of name (or one file), at most one byte more than MAX_BYTES of each.

    Hidden names are skipped, such as the `..data` folders of a ConfigMap mount; its file names are symlinks, which are
    followed. Raises PolicyUnreadable if any file cannot be read, a dangling symlink included: skipping a file would
    silently drop its teams.
    """
    try:
        names = sorted(_policy_files(path)) if path.is_dir() else [path]
        return {str(name): _content(name) for name in names}
    except OSError as error:
        raise PolicyUnreadable(f"cannot read {error.filename or path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL byte in the path
        raise PolicyUnreadable(f"cannot read {path!r}: {error}") from error


def fingerprint(files: Files) -> str:
    """Return a hash of names and contents, to detect edits."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _policy_files(folder: Path) -> list[Path]:
    return [
        entry
        for entry in folder.iterdir()
        if entry.suffix in SUFFIXES and not entry.name.startswith(".") and not entry.is_dir()
    ]


def _content(file: Path) -> bytes:
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(0, "not a regular file", str(file))  # a FIFO would block the reader forever
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


# Policy files to documents that know the lines of their fields, and everything in them that no policy may hold.
#
# Scalars are those of YAML 1.2's core schema: in YAML 1.1, by which manifests are read, `mode: off` is False.


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

    def line(self, path: FieldPath) -> int:
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

    def problem(self, path: FieldPath, message: str) -> Problem:
        """Return a problem of the field at this path."""
        return Problem(self.file, self.line(path), path_text(path), message)

    def place(self, path: FieldPath) -> str:
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


# A part of the policy with its place in a file.


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Located(Generic[T]):
    """A part of the policy and its place in a file."""

    value: T
    document: Document
    path: FieldPath

    @property
    def place(self) -> str:
        """FILE:LINE, for another problem's message."""
        return self.document.place(self.path)

    def problem(self, message: str, *below: str | int) -> Problem:
        """Return a problem of this part, or of a field below it."""
        return self.document.problem((*self.path, *below), message)
