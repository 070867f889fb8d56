"""Manifests as a stream of documents.

Splits a stream of manifests into documents with line numbers; unreadable ones become errors in their place.

The text is cut where YAML begins a new document (a line of three dashes, which no scalar can hold at that place), so
that one broken document does not take those behind it along.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from webhook.yaml_text import DocumentError, Lines, read_documents

_CUT: Final = re.compile(rb"^---(?=\s|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: its number and first line, both from 1, and its value."""

    number: int
    line: int
    value: object
    _lines: Lines
    _above: int

    def line_of(self, holder: object, key: str | int) -> int | None:
        """Find the line of a key or element of a mapping or list of this document, by the holder's identity."""
        found = self._lines.get((id(holder), key))
        return None if found is None else found + self._above


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A document that is not YAML: where, and what is wrong."""

    number: int
    line: int
    problem: str


def read_stream(content: bytes) -> Iterator[Document | Unreadable]:
    """Yield every document that says something, in order; raises nothing, whatever the bytes are."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16", errors="replace").encode()
    number = 0
    for above, part in _parts(content.removeprefix(codecs.BOM_UTF8)):
        lines: Lines = {}
        try:
            for value in _values(part, lines):
                number += 1
                if value is not None:
                    yield Document(number, above + _first_line(value, lines), value, lines, above)
        except DocumentError as error:
            number += 1
            yield Unreadable(number, above + error.line, error.problem)


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut before each document's dashes, and count the lines above; a head of comments belongs to what follows."""
    cuts = [found.start() for found in _CUT.finditer(content)]
    if cuts and all(line[:1] in (b"%", b"#", b"") for line in map(bytes.strip, content[: cuts[0]].split(b"\n"))):
        del cuts[0]
    above = 0
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        yield above, content[start:end]
        above += content.count(b"\n", start, end)


def _values(part: bytes, lines: Lines) -> Iterator[object]:
    try:
        yield from read_documents(part, lines=lines)
    except DocumentError:
        if not part.startswith(b"{"):
            raise
        try:
            value = msgspec.json.decode(part)  # JSON may write one character as two escapes, which YAML refuses
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = None
        if value is None:
            raise
        yield value


def _first_line(value: object, lines: Lines) -> int:
    """Find the line of the first key: dashes and comments before it are not what people look for."""
    if isinstance(value, dict) and value:
        return lines.get((id(value), next(iter(value))), 1)
    return 1
