"""The line of the last 24 hours of each team: the protocol of what keeps it, and its picture as points. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, Protocol

DAY_SECONDS: Final = 86_400
WIDTH: Final = 120
HEIGHT: Final = 24
"""The size of the picture in units of its own."""


class Point(NamedTuple):
    """A team's use at a time, in GPUs; `at` is in seconds of Unix time."""

    at: int
    used: float
    preemptible: float


class UsageHistory(Protocol):
    """What is known of the teams' use in the past. `why_not` is why nothing is, "" while something is."""

    why_not: str

    def last_day(self, now: int) -> Mapping[str, Sequence[Point]]:
        """Return the points of each team in the last 24 hours, in order."""


class Sparkline(NamedTuple):
    """A line as the points of an SVG polyline, and in words."""

    points: str
    words: str


def sparkline(points: Sequence[Point], *, now: int) -> Sparkline | None:
    """Return the line of the last day; None where there are fewer than two points."""
    shown = [each for each in points if now - DAY_SECONDS <= each.at <= now]
    if len(shown) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    most = max(each.used for each in shown) or 1.0
    start = now - DAY_SECONDS
    drawn = " ".join(
        f"{(each.at - start) * WIDTH / DAY_SECONDS:.1f},{HEIGHT - 1 - each.used / most * (HEIGHT - 2):.1f}"
        for each in shown
    )
    mean = sum(each.used for each in shown) / len(shown)
    least = min(each.used for each in shown)
    highest = max(each.used for each in shown)
    return Sparkline(drawn, f"least {_gpus(least)}, mean {_gpus(mean)}, most {_gpus(highest)} GPUs")


def summed(teams: Iterable[Sequence[Point]]) -> list[Point]:
    """Return the use of several teams together, at each time at which one of them is known."""
    found: dict[int, Point] = {}
    for point in chain.from_iterable(teams):
        before = found.get(point.at, Point(point.at, 0.0, 0.0))
        found[point.at] = Point(point.at, before.used + point.used, before.preemptible + point.preemptible)
    return [found[at] for at in sorted(found)]


def _gpus(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")
