"""Plots of a simulation.

What a plot is drawn of: lines, bars and texts at places in pixels, in colors by their use.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple, assert_never

from webhook.addons.simulation.simulate.results import PolicyReport
from webhook.addons.simulation.summary import Sample
from webhook.core.model.amounts import printable, shortened

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


# Drawings as SVG. Colors follow the page around it, and are light by themselves.


_STYLE: Final = f"text{{font-family:system-ui,sans-serif;font-size:{TEXT_SIZE}px;fill:var(--{TEXT},{LIGHT[TEXT]})}}"


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as an SVG document."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {drawing.height}" role="img"'
    marks = "".join(map(_mark, drawing.marks))
    return f'{head} aria-label="{escape(drawing.title)}"><style>{_STYLE}</style>{marks}</svg>'


def _mark(mark: Mark) -> str:
    match mark:
        case Polyline(points=points, color=color, width=width, dash=dash):
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            dashes = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
            return (
                f'<polyline points="{places}" fill="none" stroke="{_color(color)}" stroke-width="{width:g}"{dashes}/>'
            )
        case Bar(x=x, y=y, width=width, height=height, color=color):
            size = f'width="{width:.1f}" height="{height:.1f}"'
            return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{_color(color)}"/>'
        case Text(x=x, y=y, text=text, anchor=anchor, is_bold=is_bold):
            weight = "bold" if is_bold else "normal"
            place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
            return f"<text {place}>{escape(text)}</text>"
        case _ as never:
            assert_never(never)


def _color(use: str) -> str:
    return f"var(--{use},{LIGHT[use]})"


# Plots of our own: lines over time and bars by group, each with the same as a table.


_DASHES: Final = ((), (7, 3), (2, 3), (9, 3, 2, 3), (1, 2), (12, 4))
_LEFT, _RIGHT, _BOTTOM = 62, 12, 36
_AREA: Final = 194
"""The height of what is between the axes."""

_ROW: Final = 18
_LETTER: Final = 7.2
"""The width of a letter, about: no font is at hand that measures it."""

_TICKS: Final = 4
_DAY, _HOUR = 86_400, 3600
_LONGEST: Final = 40


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: `drawing` is the picture, `head` and `rows` are the same as a table. `name` is for files."""

    name: str
    drawing: Drawing
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def title(self) -> str:
        """What the plot shows."""
        return self.drawing.title

    @property
    def svg(self) -> str:
        """The picture as SVG."""
        return to_svg(self.drawing)


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one policy, as times in seconds and values."""

    name: str
    points: tuple[Point, ...]


class _Frame(NamedTuple):
    """Where the axes are: `top` is the upper end of the vertical one, at which the value is `most`."""

    top: float
    most: float

    @property
    def bottom(self) -> float:
        return self.top + _AREA

    @property
    def height(self) -> int:
        return round(self.bottom + _BOTTOM)

    def y(self, value: float) -> float:
        return self.bottom - value / self.most * _AREA


def curves_of(policies: Sequence[PolicyReport], value: Callable[[Sample], float]) -> list[Curve]:
    """Return one curve for each policy."""
    return [Curve(each.policy, tuple((s.at_seconds, value(s)) for s in each.samples)) for each in policies]


def line_plot(name: str, title: str, curves: Sequence[Curve]) -> Plot:
    """Draw lines over time."""
    longest = max((x for curve in curves for x, _ in curve.points), default=0) or 1
    unit, noun = (_DAY, "days") if longest > 2 * _DAY else (_HOUR, "hours")
    legend = list(_legend([curve.name for curve in curves]))
    frame = _frame(legend, (y for curve in curves for _, y in curve.points))
    marks: list[Mark] = [*_around(title, frame), *legend]
    step = _rounded_up(longest / unit / _TICKS)
    for tick in range(math.floor(longest / unit / step) + 1):
        place = _x(tick * step * unit / longest), frame.bottom + 18
        marks.append(Text(*place, f"{tick * step:,.3g}", "middle"))
    marks.append(Text((_LEFT + WIDTH) / 2, frame.height - 3, noun, "middle"))
    for number, curve in enumerate(curves):
        points = tuple((_x(x / longest), frame.y(y)) for x, y in curve.points)
        marks.append(Polyline(points, series_color(number), 2, _DASHES[number % len(_DASHES)]))
    times = sorted({x for curve in curves for x, _ in curve.points})
    known = [dict(curve.points) for curve in curves]
    rows = ((f"{time / unit:.2f}", *(f"{each[time]:,.4g}" if time in each else "" for each in known)) for time in times)
    head = (noun, *(_shown(curve.name) for curve in curves))
    return Plot(name, Drawing(title, frame.height, tuple(marks)), head, tuple(rows))


def bar_plot(
    name: str, title: str, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float | None]]]
) -> Plot:
    """Draw bars side by side for each group; a value that is not known has no bar, and says so."""
    legend = list(_legend([each for each, _ in series], is_dashed=False))
    frame = _frame(legend, (value or 0 for _, values in series for value in values))
    marks: list[Mark] = [*_around(title, frame), *legend]
    slot = (WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    width = min(40.0, slot * 0.8 / max(1, len(series)))
    for place, group in enumerate(groups):
        middle = _LEFT + (place + 0.5) * slot
        marks.append(Text(middle, frame.bottom + 18, shortened(_shown(group), max(3, int(slot / _LETTER))), "middle"))
        for number, (_, values) in enumerate(series):
            x = middle + (number - len(series) / 2) * width
            value = values[place]
            if value is None:
                marks.append(Text(x + width / 2, frame.bottom - 4, "never", "middle"))
                continue
            height = max(0.5, frame.bottom - frame.y(value))
            marks.append(Bar(x, frame.bottom - height, width - 2, height, series_color(number)))
    rows = (
        (_shown(group), *("never" if values[place] is None else f"{values[place]:,.4g}" for _, values in series))
        for place, group in enumerate(groups)
    )
    head = ("of", *(_shown(each) for each, _ in series))
    return Plot(name, Drawing(title, frame.height, tuple(marks)), head, tuple(rows))


def _frame(legend: Sequence[Mark], values: Iterator[float]) -> _Frame:
    lowest = max((each.y for each in legend if isinstance(each, Text)), default=14.0)
    return _Frame(lowest + 16, _rounded_up(max(values, default=0)))


def _around(title: str, frame: _Frame) -> Iterator[Mark]:
    """Yield the title, and the horizontal lines with their values."""
    yield Text(4, 14, title, "start", is_bold=True)
    for tick in range(_TICKS + 1):
        value = frame.most * tick / _TICKS
        y = frame.y(value)
        yield Polyline(((_LEFT, y), (WIDTH - _RIGHT, y)), GRID if tick else TEXT)
        yield Text(_LEFT - 6, y + 4, f"{value:,.4g}", "end")


def _legend(names: Sequence[str], *, is_dashed: bool = True) -> Iterator[Mark]:
    """Yield a sample and a name for each series, in rows below the title."""
    x, y = float(_LEFT), 14.0 + _ROW
    for number, name in enumerate(names):
        shown = _shown(name)
        width = _LETTER * len(shown) + 44
        if x > _LEFT and x + width > WIDTH:
            x, y = float(_LEFT), y + _ROW
        dash = _DASHES[number % len(_DASHES)] if is_dashed else ()
        yield Polyline(((x, y - 4), (x + 22, y - 4)), series_color(number), 4, dash)
        yield Text(x + 28, y, shown, "start")
        x += width


def _x(part: float) -> float:
    return _LEFT + part * (WIDTH - _LEFT - _RIGHT)


def _rounded_up(value: float) -> float:
    """Return the next number of the form 1, 2, 4, 5 or 8 times a power of ten."""
    size = 1e-3
    while size * 10 <= value:
        size *= 10
    return next((step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= value), 1.0)


def _shown(name: str) -> str:
    return shortened(printable(name), _LONGEST)
