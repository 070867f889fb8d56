"""Teams and departments as a viewer may see them, with their bars. Pure."""

from dataclasses import replace
from typing import NamedTuple

from webhook.core.explain.board import shares_of
from webhook.core.explain.idle_pods import idle_pods
from webhook.core.explain.minimum_rows import MinimumRow, minimum_rows
from webhook.core.explain.team_rows import DepartmentRow, TeamRow, UsageRow
from webhook.core.model.amount import ONE_GPU, Unlimited, gpus_text
from webhook.core.model.names import UNASSIGNED, TeamName
from webhook.core.model.text import plural_gpus
from webhook.core.world.world import World
from webhook.page.views.viewer import Viewer

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


def own_teams(world: World, viewer: Viewer) -> set[TeamName]:
    """Return the teams that the namespaces of a viewer belong to; no team is none."""
    teams = {world.tenancy(facts.name).team_name for facts in world.namespaces() if viewer.sees(facts.name)}
    return teams - {UNASSIGNED}


def line_text(row: TeamRow) -> str:
    """Return the pods in line of a team, and what they ask for; those that are charged already apart."""
    queued, starting = row.queued, row.starting
    parts = [f"{queued.pods} ({plural_gpus(queued.gpus)})"] if queued.pods else []
    return ", ".join([*parts, *([f"{starting.pods} charged"] if starting.pods else [])]) or "0"


def _bar(row: UsageRow) -> Bar:
    """Return a bar whose end is the limit; where there is none, the larger of share and use."""
    most = max(row.used, ONE_GPU)
    end = max(row.guaranteed if isinstance(row.limit, Unlimited) else row.limit, most)
    parts = (row.used - row.preemptible, row.preemptible, row.guaranteed)
    return Bar(*(int(each * _PERCENT / end) for each in parts))
