"""Recorded pods under another policy: decisions, what would have happened, the report.

Runs a history under a policy, and says what came of each pod and of each team.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from webhook.addons.history.store import HistoryError, ObjectRow, PodRow, PolicyRow, Trace
from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.task import Task, TaskRecord, TaskState
from webhook.cli.grid import Grid, Line, number
from webhook.cli.screen import Screen
from webhook.core.admission.queueing import as_requested
from webhook.core.model import decision as decision_annotation
from webhook.core.model.amounts import Namespace, TeamName, Uid, User, agreeing, plural
from webhook.core.model.constraints import TIERS, Tier
from webhook.core.model.decision import as_asked
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.model.reasons import refusal_text
from webhook.core.world.world import World
from webhook.kube.admission.templates import Template, read_template, under_policy
from webhook.kube.world_file.world_file import WorldFileError, add_objects
from webhook.policy.documents import PolicyError
from webhook.policy.watch import parse

_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one pod. `tier` is that of its first start, None if it did not start in the time of the history."""

    tier: Tier | None
    is_refused: bool = False
    is_queued: bool = False
    is_evicted: bool = False
    wait_seconds: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """Return the outcome in words."""
        parts = [word for word, holds in (("refused", self.is_refused), ("queued", self.is_queued)) if holds]
        parts.append("not started" if self.tier is None else self.tier.value)
        if self.is_evicted:
            parts.append("evicted")
        return ", ".join(parts)


class TeamSums(msgspec.Struct, rename="camel"):
    """The pods of a team by what came of them under one policy; a pod may be in several."""

    refused: int = 0
    queued: int = 0
    guaranteed: int = 0
    preemptible: int = 0
    evicted: int = 0
    not_started: int = 0
    waited_hours: Annotated[float, msgspec.Meta(description="GPU-hours that pods asked for before they started")] = 0.0


def decide_again(tasks: Iterable[Task], world: World, *, until: int) -> dict[str, Outcome]:
    """Return what comes of each task, by name, until a time; the world's policy decides."""
    queued: set[str] = set()

    def note(uid: Uid) -> None:
        if uid in world.waiting:
            queued.add(uid.rpartition("~")[0])

    simulation = Simulation(world, (task._replace(pod=under_policy(task.pod, world.policy)) for task in tasks))
    world.waiting.on_pod = note
    simulation.run(until=until)
    return {record.task.name: _outcome(record, queued, until) for record in simulation.records}


def _outcome(record: TaskRecord, queued: set[str], until: int) -> Outcome:
    name, created = record.task.name, record.task.created
    return Outcome(
        record.tier,
        is_refused=record.refusals > 0 or record.state is TaskState.REFUSED,
        is_queued=name in queued,
        is_evicted=record.evictions > 0,
        wait_seconds=max(0, (until if record.started is None else record.started) - created),
        why=refusal_text(record.refused) if record.state is TaskState.REFUSED else "",
    )


def as_recorded(
    rows: Mapping[str, PodRow], old: Mapping[str, Outcome], new: Mapping[str, Outcome], *, until: int
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Return what happened, by the record, and what would have: the same where the policies make no difference.

    Which pods waited, and the tiers, which change while pods run, are as the old policy decides again.
    """
    was, would = {}, {}
    for name, before in old.items():
        row, after = rows[name], new[name]
        wait = max(0, int((row.bound or until) - row.created))
        if row.is_refusal:
            happened = replace(before, tier=None, is_refused=True, is_evicted=False, wait_seconds=wait)
        else:
            recorded = Tier(row.tier) if row.tier in TIERS else None
            tier = (before.tier or recorded) if row.bound else None
            happened = replace(
                before, tier=tier, is_refused=False, is_evicted=row.is_evicted, wait_seconds=wait, why=""
            )
        was[name] = happened
        more = after.wait_seconds - before.wait_seconds
        is_same = before.text == after.text
        would[name] = replace(happened, wait_seconds=max(0, wait + more)) if is_same else after
    return was, would


def sums_by_team(
    tasks: Iterable[Task], outcomes: Mapping[str, Outcome], gpus: Mapping[str, float]
) -> dict[str, TeamSums]:
    """Return the sums of each team; `gpus` are the GPUs of each task."""
    sums: dict[str, TeamSums] = {}
    for task in tasks:
        found, outcome = sums.setdefault(task.team, TeamSums()), outcomes[task.name]
        found.refused += outcome.is_refused
        found.queued += outcome.is_queued
        found.guaranteed += outcome.tier is Tier.GUARANTEED
        found.preemptible += outcome.tier is Tier.PREEMPTIBLE
        found.evicted += outcome.is_evicted
        found.not_started += outcome.tier is None
        found.waited_hours += outcome.wait_seconds / 3600 * gpus[task.name]
    for found in sums.values():
        found.waited_hours = round(found.waited_hours, _DIGITS)
    return sums


# From recorded rows to what a simulation needs: the pods that came, the world around them, the policy in force.
#
# `fairgate simulate` reads a history with it, too.


_UNKNOWN_SECONDS: Final = 3600
"""How long a pod runs if no pod of the history says it."""


class RecordedPod(NamedTuple):
    """A pod as its user asked for it, with its row, and how long it ran in seconds."""

    row: PodRow
    pod: Pod
    seconds: int
    priority: int


@dataclass(frozen=True, slots=True)
class RecordedPods:
    """The pods of a history that can be decided again, and how many rows were left out, by the reason."""

    pods: tuple[RecordedPod, ...]
    left_out: Mapping[str, int]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return them as tasks of a simulation, by arrival."""
        found = (
            Task(
                name=each.row.uid,
                pod=each.pod,
                team=TeamName(each.row.team),
                created=int(each.row.created),
                seconds=each.seconds,
                user=User(each.row.user) if each.row.user else None,
                priority=each.priority,
            )
            for each in self.pods
        )
        return tuple(sorted(found, key=lambda task: (task.created, task.name)))


def joined(traces: Iterable[Trace]) -> Trace:
    """Return what several replicas recorded of the same cluster: each pod once, by the row that knows its end."""
    pods: dict[str, PodRow] = {}
    objects: dict[tuple[str, str], ObjectRow] = {}
    policies: dict[str, PolicyRow] = {}
    for trace in traces:
        for row in trace.pods:
            before = pods.get(row.uid)
            if before is None or (not row.is_refusal and _knowledge(row) > _knowledge(before)):
                pods[row.uid] = row
            elif row.is_refusal:
                pods[row.uid] = before._replace(
                    created=min(before.created, row.created), ended=max(before.ended, row.ended)
                )
        objects |= {(row.kind, row.name): row for row in trace.objects if row.object}
        policies |= {row.hash: row for row in trace.policies}
    ordered = sorted(pods.values(), key=lambda row: (row.created, row.uid))
    found = sorted(objects.values())
    return Trace(tuple(ordered), tuple(found), tuple(sorted(policies.values(), key=lambda row: (row.since, row.hash))))


def _knowledge(row: PodRow) -> tuple[bool, bool, float, str]:
    return bool(row.object), bool(row.bound), row.ended, row.team


def policy_of(policies: Iterable[PolicyRow], *, advice: str = "give --policy NEW --policy OLD") -> Policy:
    """Return the policy that was in force last. Raises HistoryError, which ends with the advice."""
    found = [*policies]
    if not found:
        raise HistoryError(f"the history has no policy: {advice}")
    try:
        return parse({"the recorded policy": found[-1].documents.encode()}, origin="the recorded policy")
    except PolicyError as error:
        text = f"this version cannot read the recorded policy; {advice}: {error.problems[0]}"
        raise HistoryError(text) from error


def policy_in_force(trace: Trace, *, otherwise: Policy) -> Policy:
    """Return the policy by which the pods were patched: what it added is no wish of their users."""
    try:
        return policy_of(trace.policies)
    except HistoryError:
        return otherwise


def world_of(trace: Trace, policy: Policy) -> World:
    """Return the nodes and namespaces of a history under a policy, without pods. Raises HistoryError."""
    world = World(policy)
    try:
        objects = (msgspec.Raw(row.object.encode()) for row in trace.objects)
        add_objects(world, objects, name="the history")
    except WorldFileError as error:
        raise HistoryError(str(error.problems[0])) from error
    return world


def recorded_pods(trace: Trace, world: World, *, until: float) -> RecordedPods:
    """Return the pods of a history; `world` has the policy that was in force when they came."""
    typical = _run_times(trace.pods)
    came = {_who(row) for row in trace.pods if not row.is_refusal}
    pods: list[RecordedPod] = []
    left_out: dict[str, int] = {}
    for row in trace.pods:
        if row.is_refusal and _who(row) in came:
            continue  # its controller created it again, and then it came in
        pod = _asked(row, world)
        if isinstance(pod, str):
            left_out[pod] = left_out.get(pod, 0) + 1
            continue
        seconds = typical.get(row.team, typical[""])
        if row.bound:
            seconds = max(1, round((row.ended or until) - row.bound))
        pods.append(RecordedPod(row, pod, seconds, _priority(row)))
    return RecordedPods(tuple(pods), left_out)


def _who(row: PodRow) -> tuple[str, str, float]:
    return row.namespace, row.owner or row.name, row.gpus


def _run_times(rows: Iterable[PodRow]) -> dict[str, int]:
    """Return how long pods of each team ran, the median; under "" that of the teams, each of which counts once."""
    times: dict[str, list[float]] = {}
    for row in rows:
        if row.bound and row.ended:
            times.setdefault(row.team, []).append(row.ended - row.bound)
    typical = {team: max(1, round(median(found))) for team, found in times.items()}
    return typical | {"": round(median(typical.values())) if typical else _UNKNOWN_SECONDS}


def _asked(row: PodRow, world: World) -> Pod | str:
    """Return the pod as its user asked for it, or why it cannot be decided again."""
    if not row.object:
        return "pods that were too large to be recorded"
    try:
        written: dict[str, Any] = msgspec.json.decode(row.object)
    except msgspec.DecodeError:
        return "pods that cannot be read"
    template = read_template(written, namespace=Namespace(row.namespace), world=world)
    if not isinstance(template, Template):
        return "pods that cannot be read"
    pod = template.pod
    if pod.claims:
        return "pods with ResourceClaims, which are not recorded"
    if pod.is_queued:
        decision = decision_annotation.read(pod.decision_annotation or "")
        pod = as_requested(pod, None if decision is None else decision.asked)
    return as_asked(pod, world.policy)._replace(uid=Uid(""), name=row.name)


def _priority(row: PodRow) -> int:
    spec = msgspec.json.decode(row.object).get("spec") or {}
    priority = spec.get("priority")
    return priority if isinstance(priority, int) else 0


# The report of `fairgate replay`: each team under both policies, and the pods for which they differ.


_SHOWN: Final = 20
_COLUMNS: Final = ("refused", "queued", "guaranteed", "preemptible", "evicted", "not_started")


class TeamReport(msgspec.Struct, rename="camel"):
    """A team under the old and the new policy."""

    team: str
    pods: int
    old: TeamSums
    new: TeamSums


class ChangedPod(msgspec.Struct, rename="camel"):
    """A pod that gets something else under the new policy; `why` is a final refusal."""

    pod: str
    team: str
    gpus: float
    old: str
    new: str
    why: str = ""


class ReplayReport(msgspec.Struct, rename="camel"):
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
