"""Parses YAML text to plain values with their line numbers. Knows nothing of what a policy may contain.

Scalars follow YAML 1.2's core schema, not PyYAML's YAML 1.1: there `mode: off` is False, `pool: no` too, and
`limit: 1:30` is 90.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML built without libyaml: slower, same meaning
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

from webhook.policy.problems import Path, Problem, described, path_text, shortened
from webhook.policy.source import MAX_BYTES, Files

MAX_DEPTH: Final = 32  # a policy is 8 deep; PyYAML's C composer recurses and crashes the process at some 10,000
MAX_VALUES: Final = 100_000  # after aliases are expanded: a kilobyte of nested aliases makes billions
_TAG: Final = "tag:yaml.org,2002:"


class _Loader(_BaseLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own attribute; removes YAML 1.1's entries


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     list("-+.0123456789")),
):  # fmt: skip
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its value, and its YAML nodes, which have the line numbers."""

    file: str
    root: yaml.Node
    value: object

    def line(self, path: Path) -> int:
        """Return the line of a field, or of the deepest part of its path that exists."""
        node, line = self.root, _line(self.root)
        for part in path:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = _line(node)
            elif isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if pair[0].value == part), None)
                if found is None:
                    break
                line, node = _line(found[0]), found[1]
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
        text = _text(file, content)
        if isinstance(text, Problem):
            parsed.problems.append(text)
            continue
        try:
            _check_depth(text)
            for root in yaml.compose_all(text, _Loader):
                _add_document(file, root, parsed)
        except _TooDeepError as error:
            parsed.problems.append(Problem(file, error.line, "", f"nested more than {MAX_DEPTH} levels deep"))
        except yaml.YAMLError as error:
            parsed.problems.append(_syntax_problem(file, text, error))
    return parsed


def _text(file: str, content: bytes) -> str | Problem:
    if len(content) > MAX_BYTES:
        return Problem(file, 0, "", "larger than 1 MiB, which is more than a ConfigMap holds; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Problem(file, line, "", f"not UTF-8 text (byte 0x{content[error.start]:02x}); save the file as UTF-8")


class _TooDeepError(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _check_depth(text: str) -> None:
    """Check the depth on the parser's events, which do not recurse, before the composer, which does."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _TooDeepError(_line(event))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        context = f" {error.context}" if error.context else ""
        line = min(error.problem_mark.line + 1, len(text.splitlines()))  # libyaml reports the end of a file a line late
        return Problem(file, line, "", f"not valid YAML: {error.problem}{context}")
    position = getattr(error, "position", 0)  # of a ReaderError, in bytes with libyaml, in characters without
    line = text.encode().count(b"\n", 0, position) + 1
    return Problem(file, line, "", f"not valid YAML: {getattr(error, 'reason', error)}")


def _add_document(file: str, root: yaml.Node, parsed: ParsedFiles) -> None:
    builder = _Builder(file)
    value = builder.build(root, ())
    parsed.problems += builder.problems
    if value is not None:
        parsed.documents.append(Document(file, root, value))


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "str": str,
    "null": lambda _text: None,
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}


class _Builder:
    """Builds values from YAML nodes; collects problems, and leaves out the parts that have one."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._values = 0
        self._open: set[int] = set()

    def build(self, node: yaml.Node, path: Path) -> object:
        self._values += 1
        if self._values > MAX_VALUES:
            if self._values == MAX_VALUES + 1:
                self._note(node, path, f"more than {MAX_VALUES:,} values, aliases included; split the file")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._note(node, path, "an alias of a part that contains it; write it out")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
            return dict(self._pairs(node, path))
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: yaml.Node, path: Path) -> Iterator[tuple[str, object]]:
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if self._values > MAX_VALUES:
                return
            if key_node.tag != _TAG + "str" or not isinstance(key_node, yaml.ScalarNode):
                self._note(key_node, path, f"a key must be text{_quoting(key_node)}")
                continue
            key: str = key_node.value
            if key == "<<":
                self._note(key_node, path, "merge keys (<<) are not part of YAML 1.2; write the fields out")
            elif key in first_lines:
                message = f"appears twice, first on line {first_lines[key]}; keep one"
                self._note(key_node, (*path, key), message)
            else:
                first_lines[key] = _line(key_node)
                yield key, self.build(value_node, (*path, key))

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        text: str = node.value
        read = _READERS.get(node.tag.removeprefix(_TAG))
        if read is None:
            self._note(node, path, f"tag {shortened(node.tag)} is not supported; write plain text or a number")
            return None
        try:
            return read(text)
        except ValueError:  # an explicit tag such as `!!int x`, or more digits than Python reads
            self._note(node, path, f"expected a number, got {described(text)}")
            return None

    def _note(self, node: yaml.Node, path: Path, message: str) -> None:
        self.problems.append(Problem(self.file, _line(node), path_text(path), message))


def _quoting(node: yaml.Node) -> str:
    return f'; quote it: "{shortened(node.value)}"' if isinstance(node, yaml.ScalarNode) else ""


def _line(part: yaml.Node | yaml.Event) -> int:
    return int(part.start_mark.line) + 1 if part.start_mark is not None else 0
