"""The report of `fairgate replay`: each team under both policies, and the pods for which they differ."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from webhook.cli.formatting import plural
from webhook.cli.grid import Grid, number
from webhook.cli.replay.outcomes import Outcome, TeamSums, sums_by_team
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.core.model.text import agreeing
from webhook.history.trace_row import PodRow
from webhook.simulation.task import Task

_SHOWN: Final = 20
_COLUMNS: Final = ("refused", "queued", "guaranteed", "preemptible", "evicted", "not_started")


class TeamReport(msgspec.Struct):
    """A team under the old and the new policy."""

    team: str
    pods: int
    old: TeamSums
    new: TeamSums


class ChangedPod(msgspec.Struct):
    """A pod that gets something else under the new policy; `why` is a final refusal."""

    pod: str
    team: str
    gpus: float
    old: str
    new: str
    why: str = ""


class ReplayReport(msgspec.Struct):
    """What the new policy changes for the pods of a history."""

    since: str
    until: str
    old_policy: str
    new_policy: str
    pods: int
    left_out: dict[str, int]
    teams: list[TeamReport]
    changes: list[ChangedPod]


def teams_of(
    tasks: Sequence[Task], rows: Mapping[str, PodRow], old: Mapping[str, Outcome], new: Mapping[str, Outcome]
) -> list[TeamReport]:
    """Return each team under both policies, by name."""
    gpus = {name: row.gpus for name, row in rows.items()}
    before, after = sums_by_team(tasks, old, gpus), sums_by_team(tasks, new, gpus)
    pods = Counter(task.team for task in tasks)
    return [TeamReport(team, pods[team], before[team], after[team]) for team in sorted(pods)]


def changes_of(
    tasks: Sequence[Task], rows: Mapping[str, PodRow], old: Mapping[str, Outcome], new: Mapping[str, Outcome]
) -> Iterator[ChangedPod]:
    """Yield the pods for which the policies differ, in the order in which they came."""
    for task in tasks:
        before, after, row = old[task.name], new[task.name], rows[task.name]
        if before.text != after.text:
            where = f"{row.namespace}/{row.name}"
            yield ChangedPod(where, row.team, row.gpus, before.text, after.text, after.why)


def to_table(report: ReplayReport, *, limit: int, width: int, is_colored: bool) -> str:
    """Return the report as text: the teams, the first of the pods that differ, and what was left out."""
    screen = Screen(width=width, is_colored=is_colored)
    changing = (number(name.replace("_", " ")) for name in _COLUMNS)
    table = Grid("team", number("pods", goes=1), *changing, number("GPU-hours waited", goes=2))
    for each in report.teams:
        names = (*_COLUMNS, "waited_hours")
        cells = (_cell(getattr(each.old, name), getattr(each.new, name)) for name in names)
        table.add_row(Line(each.team), Line(f"{each.pods:,}"), *map(Line, cells))
    screen.show(table, "")
    for change in report.changes[:limit]:
        why = f": {change.why}" if change.why else ""
        gpus = f"{change.gpus:g} {agreeing(change.gpus, 'GPU', 'GPUs')}"
        screen.show(Line(f"{change.pod} ({gpus}): {change.old} → {change.new}{why}"))
    screen.show_rest(len(report.changes) - limit, "pod")
    for why, count in report.left_out.items():
        screen.show(Line(f"left out: {count:,} {why}"))
    changed = plural(len(report.changes), "pod") if report.changes else "no pod"
    text = f"{plural(report.pods, 'pod')} from {report.since} to {report.until}: {changed} would get something else"
    screen.show(Line(f"{text} (policy {report.old_policy} → {report.new_policy})"))
    return screen.text


def _cell(old: float, new: float) -> str:
    def shown(value: float) -> str:
        return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"

    return shown(old) if shown(old) == shown(new) else f"{shown(old)} → {shown(new)}"
