"""Views of teams, for a viewer, with their history.

The line of the last 24 hours of each team: the protocol of what keeps it, and its picture as points. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, Protocol

from webhook.core.explain.pod_rows import BypassedPod, bypassed_pods, idle_pods
from webhook.core.explain.team_rows import DepartmentRow, MinimumRow, TeamRow, UsageRow, minimum_rows, shares_of
from webhook.core.model.amounts import ONE_GPU, UNASSIGNED, TeamName, Unlimited, exceeds, gpus_text, plural_gpus
from webhook.core.world.world import World

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


# What one viewer may read of the cluster: pods and Events of all namespaces or of some, and nodes.


_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who looks at the page, and what they may list.

    `namespaces` are those whose pods they may list, `events` those whose Events; None is all. `nodes` is whether they
    may list nodes. `notes` say what is not shown, and which right would show it.
    """

    name: str = ""
    namespaces: frozenset[str] | None = frozenset()
    notes: tuple[str, ...] = ()
    nodes: bool = False
    events: frozenset[str] | None = frozenset()

    @property
    def person(self) -> str:
        """Who bounds on questions, streams and sessions count for."""
        return person_of(self.name)

    @property
    def sees_all(self) -> bool:
        """Whether the pods of every namespace and all nodes may be seen: all that a decision is made from."""
        return self.namespaces is None and self.nodes

    @property
    def sees_all_pods(self) -> bool:
        """Whether the pods of every namespace may be seen."""
        return self.namespaces is None

    @property
    def sees_nothing(self) -> bool:
        """Whether no pod may be seen."""
        return self.namespaces is not None and not self.namespaces

    def sees(self, namespace: str) -> bool:
        """Whether the pods of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_events(self, namespace: str) -> bool:
        """Whether the Events about pods of a namespace may be seen."""
        return self.sees(namespace) and (self.events is None or namespace in self.events)


def person_of(user: str) -> str:
    """Return who shares bounds with a user: a namespace's ServiceAccounts are one person, who can make any number."""
    namespace, colon, _ = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return f"{_SERVICE_ACCOUNT}{namespace}" if colon and user.startswith(_SERVICE_ACCOUNT) else user


EVERYTHING: Final = Viewer(namespaces=None, nodes=True, events=None)
"""The viewer of a page that runs with the rights of its only user."""


# Teams and departments as a viewer may see them, with their bars. Pure.


_PERCENT = 100


class Bar(NamedTuple):
    """A bar in percent of its length: guaranteed and preemptible use, and where the guaranteed share ends."""

    guaranteed: int
    preemptible: int
    share: int


class ShareRow(NamedTuple):
    """A team or a department as the viewer may see it, and its bar. `depth` is how many departments are above it."""

    depth: int
    of: TeamRow | DepartmentRow
    bar: Bar

    @property
    def is_team(self) -> bool:
        """Whether it is a team."""
        return isinstance(self.of, TeamRow)

    @property
    def is_over(self) -> bool:
        """Whether more is used than the limit, as after it was lowered."""
        return exceeds(self.of.used, self.of.limit)


def share_rows(world: World, viewer: Viewer, *, holders: int = 5) -> list[ShareRow]:
    """Return departments and teams in the order of their tree.

    A viewer of some namespaces sees the teams that these belong to, and no department.
    """
    own = None if viewer.sees_all_pods else own_teams(world, viewer)
    rows = []
    for depth, row in shares_of(world, holders=holders).tree():
        if isinstance(row, TeamRow):
            if own is None or row.name in own:
                seen = tuple([each for each in row.holders if viewer.sees(each[0].partition("/")[0])])
                rows.append(ShareRow(depth if own is None else 0, replace(row, holders=seen), _bar(row)))
        elif own is None:
            rows.append(ShareRow(depth, row, _bar(row)))
    return rows


class IdlePod(NamedTuple):
    """A pod that does not use its GPUs; `since` is in seconds of Unix time."""

    namespace: str
    name: str
    team: str
    tier: str
    gpus: str
    since: int


def idle_rows(world: World, viewer: Viewer, *, most: int) -> list[IdlePod]:
    """Return the pods that a viewer may list and that do not use their GPUs, those that hold most first."""
    found = [(each.team, pod) for each in idle_pods(world) for pod in each.pods if viewer.sees(pod.namespace)]
    found.sort(key=lambda row: -row[1].demand.gpus)
    return [
        IdlePod(pod.namespace, pod.name, team, pod.tier_label or "", gpus_text(pod.demand.gpus), pod.idle_since)
        for team, pod in found[:most]
    ]


def minimums_of(world: World, viewer: Viewer, *, most: int) -> tuple[list[MinimumRow], int]:
    """Return the workloads with a minimum that a viewer may list, and how many there are beyond `most`."""
    rows = minimum_rows(world, sees=viewer.sees)
    return rows[:most], max(0, len(rows) - most)


def bypassed_rows(world: World, viewer: Viewer, *, most: int) -> tuple[list[BypassedPod], int]:
    """Return the pods without a decision that a viewer may list, and how many there are beyond `most`."""
    rows = bypassed_pods(world, sees=viewer.sees)
    return rows[:most], max(0, len(rows) - most)


def own_teams(world: World, viewer: Viewer) -> set[TeamName]:
    """Return the teams that the namespaces of a viewer belong to; no team is none."""
    teams = {world.tenancy(facts.name).team_name for facts in world.namespaces() if viewer.sees(facts.name)}
    return teams - {UNASSIGNED}


def line_text(row: TeamRow) -> str:
    """Return the queued pods of a team, and what they ask for; those that are charged already apart."""
    queued, starting = row.queued, row.starting
    parts = [f"{queued.pods} ({plural_gpus(queued.gpus)})"] if queued.pods else []
    return ", ".join([*parts, *([f"{starting.pods} charged"] if starting.pods else [])]) or "0"


def _bar(row: UsageRow) -> Bar:
    """Return a bar whose end is the limit; where there is none, the larger of share and use."""
    most = max(row.used, ONE_GPU)
    end = max(row.guaranteed if isinstance(row.limit, Unlimited) else row.limit, most)
    parts = (row.used - row.preemptible, row.preemptible, row.guaranteed)
    return Bar(*(int(each * _PERCENT / end) for each in parts))
