"""Plots of a simulation as SVG, drawn by matplotlib, which the extra `plots` installs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from webhook.addons.simulation.simulate.results import PolicyReport
from webhook.addons.simulation.summary import Sample
from webhook.core.model.amounts import printable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING: Final = "plots need matplotlib, which is not installed: pip install 'fairgate[plots]'"

_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colors that people with any color vision tell apart (Okabe and Ito); lines differ in their dashes, too."""

_DASHES: Final = ("-", "--", ":", "-.")
_STYLE: Final[Any] = {
    "text.parse_math": False,  # a $ in the name of a team is a $
    "svg.fonttype": "none",
    "svg.hashsalt": "fairgate",
    "font.size": 9,
}
_WIDTH, _HEIGHT, _LEGEND_ROW = 4.2, 2.9, 0.19
"""Inches: about the width of a phone. Each policy has a row of the legend."""

_DAY, _HOUR = 86_400, 3600
_LONGEST: Final = 40


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: `head` and `rows` are its values as a table. `name` is for files, `svg` draws it."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    svg: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one policy, as times in seconds and values."""

    name: str
    points: tuple[tuple[float, float], ...]


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def curves_of(policies: Sequence[PolicyReport], value: Callable[[Sample], float]) -> list[Curve]:
    """Return one curve for each policy."""
    return [Curve(each.policy, tuple((s.at_seconds, value(s)) for s in each.samples)) for each in policies]


def line_plot(name: str, title: str, curves: Sequence[Curve]) -> Plot:
    """Return lines over time."""
    longest = max((x for curve in curves for x, _ in curve.points), default=0)
    unit, noun = (_DAY, "days") if longest > 2 * _DAY else (_HOUR, "hours")

    def draw(axes: "Axes") -> None:
        for number, curve in enumerate(curves):
            times, values = zip(*curve.points, strict=True) if curve.points else ((), ())
            color, dash = _COLORS[number % len(_COLORS)], _DASHES[number % len(_DASHES)]
            axes.plot([time / unit for time in times], values, label=_shown(curve.name), color=color, linestyle=dash)
        axes.set_xlabel(noun)

    times = sorted({x for curve in curves for x, _ in curve.points})
    known = [dict(curve.points) for curve in curves]
    rows = ((f"{time / unit:.2f}", *(f"{each[time]:,.4g}" if time in each else "" for each in known)) for time in times)
    names = [_shown(curve.name) for curve in curves]
    return Plot(name, title, (noun, *names), tuple(rows), lambda: _svg(title, draw, len(names)))


def bar_plot(
    name: str, title: str, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float | None]]]
) -> Plot:
    """Return bars side by side for each group; a value that is not known has no bar, and says so."""
    shown = [_shown(group) for group in groups]

    def draw(axes: "Axes") -> None:
        width = 0.8 / max(1, len(series))
        for number, (of, values) in enumerate(series):
            places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(groups))]
            heights = [value or 0.0 for value in values]
            bars = axes.bar(places, heights, width, label=_shown(of), color=_COLORS[number % len(_COLORS)])
            axes.bar_label(bars, ["never" if value is None else "" for value in values])
        axes.set_xticks(range(len(groups)), [shortened(each, max(3, 48 // len(shown))) for each in shown])

    texts = [[("never" if value is None else f"{value:,.4g}") for value in values] for _, values in series]
    rows = ((group, *(of[place] for of in texts)) for place, group in enumerate(shown))
    names = [_shown(each) for each, _ in series]
    return Plot(name, title, ("of", *names), tuple(rows), lambda: _svg(title, draw, len(names)))


def _svg(title: str, draw: Callable[["Axes"], None], series: int) -> str:
    with _figure(series) as figure:
        axes = figure.subplots()
        axes.set_title(title, loc="left", fontsize="medium", wrap=True)
        axes.grid(axis="y", alpha=0.4)
        axes.set_axisbelow(True)
        draw(axes)
        axes.set_ylim(bottom=0)
        if series:
            figure.legend(loc="outside lower left", frameon=False)
        file = StringIO()
        figure.savefig(file, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    return file.getvalue()


@contextmanager
def _figure(series: int) -> "Iterator[Figure]":
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        yield Figure(figsize=(_WIDTH, _HEIGHT + _LEGEND_ROW * series), layout="constrained")


def _shown(name: str) -> str:
    return shortened(printable(name), _LONGEST)
