"""Tables for a terminal: columns, wrapped cells, reasons.

Tables for terminals and pipes, and the one rule for all of them where room is short.

Names and numbers are never broken. Where a table is wider than its terminal, headings and texts break at spaces, and
lists behind their commas, down to LEAST characters. If that is not enough, columns are left out in the order of their
`goes`, 1 first; a column without it always stays. What is still too wide then is left to the terminal.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final

import click
import msgspec
from rich.cells import cell_len
from rich.text import Text

from webhook.core.model.amounts import printable
from webhook.core.model.reasons import Reason, facts_json
from webhook.files import InputError

LEAST: Final = 24
"""The width to which texts are narrowed before a column is left out."""

_GAP: Final = "  "


class Kind(Enum):
    """What a column has."""

    NAME = "name"
    NUMBER = "number"
    TEXT = "text"
    LIST = "list"


_PIECES: Final = {Kind.TEXT: re.compile(r"\s*\S+\s*"), Kind.LIST: re.compile(r"(?:[^,]|,(?!\s))+(?:,\s+)?")}
"""What stays together in a cell, by the kind of its column; of the others, whole cells do."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `goes` is its place in the order in which columns are left out, 0 for never."""

    heading: str
    kind: Kind = Kind.NAME
    goes: int = 0


def number(heading: str, *, goes: int = 0) -> Column:
    """Return a column of numbers, which are aligned at the right."""
    return Column(heading, Kind.NUMBER, goes)


def prose(heading: str, *, goes: int = 0) -> Column:
    """Return a column of texts, which may take several lines."""
    return Column(heading, Kind.TEXT, goes)


def listing(heading: str, *, goes: int = 0) -> Column:
    """Return a column of lists with commas, which may take several lines."""
    return Column(heading, Kind.LIST, goes)


class Grid:
    """A table without lines, of columns or of the headings of columns of names."""

    def __init__(self, *columns: Column | str, has_header: bool = True, heading_style: str = "bold") -> None:
        self._columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self._rows: list[tuple[Text, ...]] = []
        self._has_header = has_header
        self._heading_style = heading_style

    def __len__(self) -> int:
        return len(self._rows)

    def add_row(self, *cells: Text) -> None:
        """Add a row, with a cell for each column; a cell may have several lines."""
        self._rows.append(cells)

    def fitted(self, width: int) -> "Fitted":
        """Return the lines of the table at a width, and the headings of the columns that it has no room for."""
        shown, left_out = list(range(len(self._columns))), list[str]()
        wanted = [self._natural(number) for number in shown]
        if sum(wanted) + len(_GAP) * (len(shown) - 1) <= width:
            return Fitted(self._lines(shown, wanted), ())
        least = [min(self._least(number), wanted[number]) for number in shown]
        while sum(least[each] for each in shown) + len(_GAP) * (len(shown) - 1) > width:
            going = [each for each in shown if self._columns[each].goes]
            if not going:
                break
            first = min(going, key=lambda each: self._columns[each].goes)
            shown.remove(first)
            left_out.append(self._columns[first].heading)
        spare = width - sum(least[each] for each in shown) - len(_GAP) * (len(shown) - 1)
        growing = [wanted[each] if self._columns[each].kind in _PIECES else least[each] for each in shown]
        widths = _shared_out(spare, growing, [least[each] for each in shown])
        return Fitted(self._lines(shown, widths), tuple(left_out))

    def _natural(self, number: int) -> int:
        lines = (line for row in self._rows for line in row[number].plain.split("\n"))
        return max(map(cell_len, (self._heading(number), *lines)))

    def _least(self, number: int) -> int:
        """Return the width below which something would be broken, or a text would be narrower than LEAST."""
        column = self._columns[number]
        lines = (line for row in self._rows for line in row[number].plain.split("\n"))
        pieces = (piece.strip() for line in lines for piece in _pieces(line, column.kind))
        least = max(map(cell_len, (*self._heading(number).split(), *pieces)), default=0)
        return max(least, LEAST) if column.kind is Kind.TEXT else least

    def _heading(self, number: int) -> str:
        return self._columns[number].heading if self._has_header else ""

    def _lines(self, shown: Sequence[int], widths: Sequence[int]) -> list[Text]:
        columns = [self._columns[each] for each in shown]
        lines: list[Text] = []
        if self._has_header:
            texts = [Text(each.heading, style=self._heading_style) for each in columns]
            headings = [wrapped(text, width) for text, width in zip(texts, widths, strict=True)]
            height = max(map(len, headings))
            lines += _beside([[Text()] * (height - len(each)) + each for each in headings], columns, widths)
        for row in self._rows:
            cells = [_broken(row[each], self._columns[each].kind, to) for each, to in zip(shown, widths, strict=True)]
            lines += _beside(cells, columns, widths)
        return lines


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table at a width."""

    lines: list[Text]
    left_out: tuple[str, ...]


def wrapped(text: Text, width: int) -> list[Text]:
    """Break a text at its line breaks, and at spaces where it is too wide; never inside a word."""
    return _broken(text, Kind.TEXT, width)


def _broken(text: Text, kind: Kind, width: int) -> list[Text]:
    if "\n" not in text.plain and cell_len(text.plain) <= width:
        return [text]
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        breaks, used, at = list[int](), 0, 0
        for piece in _pieces(line.plain, kind):
            if used and used + cell_len(piece.rstrip()) > width:
                breaks.append(at)
                used = 0
            used += cell_len(piece)
            at += len(piece)
        for part in line.divide(breaks) if breaks else [line]:
            part.rstrip()
            lines.append(part)
    return lines


def _pieces(text: str, kind: Kind) -> list[str]:
    """Return what stays together, with the spaces around it."""
    pattern = _PIECES.get(kind)
    return (pattern.findall(text) if pattern is not None else []) or [text]


def _shared_out(spare: int, wanted: Sequence[int], least: Sequence[int]) -> list[int]:
    """Return widths: the least ones, and the spare room shared evenly among the columns that want more."""
    widths = list(least)
    needy = sorted((want - has, at) for at, (want, has) in enumerate(zip(wanted, least, strict=True)) if want > has)
    for rank, (need, at) in enumerate(needy):
        given = max(0, min(need, spare // (len(needy) - rank)))
        widths[at] += given
        spare -= given
    return widths


def _beside(cells: Sequence[Sequence[Text]], columns: Iterable[Column], widths: Sequence[int]) -> Iterable[Text]:
    """Yield the lines of a row, whose cells have lines of their own."""
    rights = [each.kind is Kind.NUMBER for each in columns]
    last = len(widths) - 1
    for number in range(max(map(len, cells), default=0)):
        line = Text()
        for at, (cell, width, is_right) in enumerate(zip(cells, widths, rights, strict=True)):
            part = cell[number] if number < len(cell) else Text()
            room = " " * (width - cell_len(part.plain))
            line.append(room if is_right else "").append_text(part)
            if at < last:
                line.append(("" if is_right else room) + _GAP)
        yield line


# A reason as data, in every `-o json` that has reasons.


Facts = Annotated[
    dict[str, Any],
    msgspec.Meta(description="what the text says, by name; amounts of GPUs are texts, as in 2, 0.5 or 3/7"),
]


class ReasonReport(msgspec.Struct):
    """One reason, with its stable code and its facts."""

    code: str
    message: str
    facts: Facts

    @classmethod
    def of(cls, reason: Reason) -> "ReasonReport":
        """Return a reason as data."""
        return cls(reason.code, reason.text, facts_json(reason.statement))


# Terminal output. It has names chosen by users, which must not break a table or send control sequences.


class Line(Text):
    """Text on one line; line breaks, ANSI sequences and other control characters are escaped."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(printable(text), style)


def print_problems(error: InputError) -> None:
    """Print an error to standard error: one line, or a line for each of its problems."""
    for problem in error.problems:
        print_error(problem)


def print_error(problem: object) -> None:
    """Print a problem to standard error, on one line."""
    click.echo(f"fairgate: {printable(str(problem))}", err=True)
