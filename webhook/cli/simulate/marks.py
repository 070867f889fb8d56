"""What a plot is drawn of: lines, bars and texts at places in pixels, in colors by their use."""

from dataclasses import dataclass
from typing import Final, NamedTuple

TEXT: Final = "text"
GRID: Final = "grid"
SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colors that people with any color vision tell apart (Okabe and Ito); lines differ in their dashes, too."""

LIGHT: Final = {TEXT: "#222222", GRID: "#dddddd", **{f"line-{number}": each for number, each in enumerate(SERIES)}}
"""The colors on a light background, by use."""

TEXT_SIZE: Final = 12
WIDTH: Final = 400
"""About the width of a phone, so that its texts are read there; a wider page has plots beside each other."""

Point = tuple[float, float]


def series_color(number: int) -> str:
    """Return the use of the color of a series."""
    return f"line-{number % len(SERIES)}"


class Polyline(NamedTuple):
    """A line through points; `dash` are the lengths of strokes and gaps, none for a solid line."""

    points: tuple[Point, ...]
    color: str
    width: float = 1.0
    dash: tuple[int, ...] = ()


class Bar(NamedTuple):
    """A filled rectangle by its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    color: str


class Text(NamedTuple):
    """A text on a base line; `anchor` is the part of it that is at the place: start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str
    is_bold: bool = False


Mark = Polyline | Bar | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of WIDTH by `height` pixels; `title` is its name for who does not see it."""

    title: str
    height: int
    marks: tuple[Mark, ...]
