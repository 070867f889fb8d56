"""Reads the cells of a table: numbers within bounds, times and words. What is wrong is collected, not raised."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from math import ceil, isfinite
from typing import Final

from webhook.core.model.text import printable, shortened

_LONGEST: Final = 100
_NOTHING: Final = frozenset({"none", "null", "nan"})
_LATEST: Final = 1 << 40
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+([.][0-9]*)?")
_DATES: Final = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S%z")


class Cells:
    """The cells of one row by column. `problems` are those found so far, each with its column."""

    def __init__(self, cells: Mapping[str, str | None]) -> None:
        self.problems: list[str] = []
        self._cells = cells

    def text(self, column: str) -> str:
        """Return a cell without spaces around it; "" if it is empty or there is no such column."""
        return (self._cells.get(column) or "").strip()

    def number(self, column: str, *, most: int, least: int = 0, default: int | None = None) -> int:
        """Return a whole number, rounded up; `default` for an empty cell."""
        return self._scaled(column, 1, most=most, least=least, default=default)

    def thousandths(self, column: str, *, most: int, default: int | None = None) -> int:
        """Return a number in thousandths, rounded up."""
        return self._scaled(column, 1000, most=most, least=0, default=default)

    def time(self, column: str) -> int | None:
        """Return a time in seconds, from a number or a date (of UTC); None for an empty cell."""
        found = self.text(column)
        if not found or found.lower() in _NOTHING:
            return None
        number = _number(found)
        if number is not None:
            if abs(number) <= _LATEST:
                return int(number)
            return self._wrong(column, found, "a time in seconds")
        for form in _DATES:
            try:
                parsed = datetime.strptime(found, form)
            except ValueError:
                continue
            return int(parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp())
        return self._wrong(column, found, "seconds, or a date such as 2026-11-23 08:00:00")

    def _scaled(self, column: str, scale: int, *, most: int, least: int, default: int | None) -> int:
        found = self.text(column)
        if not found and default is not None:
            return default
        number = _number(found)
        if number is None:
            return self._wrong(column, found, "a number")
        if not least <= number * scale <= most:
            return self._wrong(column, found, f"a number from {least // scale:,} to {most // scale:,}")
        return ceil(number * scale)

    def _wrong(self, column: str, found: str, wanted: str) -> int:
        shown = shortened(printable(found), _LONGEST)
        self.problems.append(f"{column}: got {repr(shown) if shown else 'nothing'}; expected {wanted}")
        return 0


def _number(text: str) -> Fraction | None:
    """Parse a number exactly; None for other text, infinities included."""
    if len(text) > _LONGEST or not text.isascii():
        return None
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return Fraction(number) if isfinite(number) else None
