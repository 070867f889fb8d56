"""The effect of a policy edit on pods that run or wait in line: judged under both policies, the differences shown."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import msgspec

from webhook.cli.formatting import plural
from webhook.cli.grid import Grid, number, prose
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.cli.world_source import Objects, WorldObjects, world_of
from webhook.core.explain.policy_replay import PolicyOutcome, Running, line_outcomes, policy_outcomes
from webhook.core.model.amount import format_gpus
from webhook.core.model.demand import Demand
from webhook.core.model.names import Namespace, NodeName
from webhook.core.model.original_request import as_asked
from webhook.core.model.policy import Policy
from webhook.core.model.reason import cause_of, refusal_text, waits_for
from webhook.core.quota.team import is_hidden
from webhook.core.world.world import World
from webhook.kube.kinds.model import mapping, text
from webhook.simulation.simulate import Template, read_template

_REFUSED: Final = "refused"
_QUEUED: Final = "queued"


class OutcomeReport(msgspec.Struct):
    """The outcome of a pod under a policy."""

    team: str
    outcome: Annotated[str, msgspec.Meta(description="guaranteed, preemptible, queued, refused or counted")]
    pool: Annotated[str | None, msgspec.Meta(description="empty for the whole cluster, null where there is none")]
    reason: str


class ChangeReport(msgspec.Struct):
    """A pod whose outcome differs under the new policy."""

    pod: str
    gpus: str
    node: str | None
    old: OutcomeReport
    new: OutcomeReport


class DiffReport(msgspec.Struct):
    """What the new policy changes for the pods of a world, in the order of their names."""

    changes: list[ChangeReport]
    pods: Annotated[int, msgspec.Meta(description="GPU pods that were judged")]


class _Judged(NamedTuple):
    """A pod and its outcome; `node` is None for one on no node, and in line."""

    demand: Demand
    node: NodeName | None
    outcome: OutcomeReport
    is_in_line: bool = False


def compare(found: WorldObjects, old: Policy, new: Policy, *, name: str) -> DiffReport:
    """Return the pods of a world whose outcome differs between two policies. Raises WorldError."""
    before, after = _judged(found, old, name=name), _judged(found, new, name=name)
    changes = []
    judged = before | after
    for key in sorted(judged):
        pod = judged[key]
        was, now = (side[key].outcome if key in side else _UNCOUNTED for side in (before, after))
        shown = _as_it_is(was, pod)
        if _differs(was, now) and _differs(shown, now):
            changes.append(ChangeReport(key, format_gpus(pod.demand.gpus), pod.node, shown, now))
    return DiffReport(changes, len(judged))


_UNCOUNTED = OutcomeReport("", "not counted", None, "")
"""The outcome of a pod none of whose resources a policy counts."""


def _differs(was: OutcomeReport, now: OutcomeReport) -> bool:
    return (was.team, was.outcome, was.pool) != (now.team, now.outcome, now.pool)


def _as_it_is(was: OutcomeReport, pod: _Judged) -> OutcomeReport:
    """Return the outcome under the old policy: a pod in line is queued, also if it starts with the next release."""
    is_queued = pod.is_in_line and was.outcome != _REFUSED
    return OutcomeReport(was.team, _QUEUED, None, was.reason) if is_queued else was


def _judged(found: WorldObjects, policy: Policy, *, name: str) -> dict[str, _Judged]:
    full = world_of(found, policy, name=name, keep_nodes=True)
    empty = world_of(found.without_pods, policy, name=name, keep_nodes=True)
    running = list(_running(found.objects, full))
    waiting = [each for each in full.waiting.all() if not is_hidden(each.pod.namespace)]
    judged = policy_outcomes(running, empty) | line_outcomes(full, is_room_known=found.coverage.is_room_known)
    decided = {
        f"{pod.namespace}/{pod.name}": _Judged(pod.demand, pod.node, _report(judged[pod.uid]))
        for pod in (each.resident for each in running)
    }
    return decided | {
        f"{pod.namespace}/{pod.name}": _Judged(pod.demand, None, _report(judged[pod.uid]), is_in_line=True)
        for pod in (each.pod for each in waiting)
    }


def _running(found: Objects, world: World) -> Iterator[Running]:
    residents = {(pod.namespace, pod.name): pod for pod in world.pods() if pod.demand.gpus}
    for each in found:
        metadata = mapping(each.get("metadata"))
        namespace = Namespace(text(metadata.get("namespace")) or "default")
        resident = residents.get((namespace, text(metadata.get("name")))) if each.get("kind") == "Pod" else None
        template = None if resident is None else read_template(each, namespace=namespace, world=world)
        if resident is not None and isinstance(template, Template):
            yield Running(resident, as_asked(template.pod, world.policy))


def _report(outcome: PolicyOutcome) -> OutcomeReport:
    if outcome.refusals:
        return OutcomeReport(outcome.team, _REFUSED, outcome.pool, refusal_text(outcome.refusals))
    if outcome.queued is not None:
        waits = waits_for(outcome.queued.code, cause_of(outcome.queued))
        return OutcomeReport(outcome.team, _QUEUED, outcome.pool, f"{waits.text} ({waits.code})")
    why = "" if outcome.counted is None else outcome.counted.text
    return OutcomeReport(outcome.team, "counted" if outcome.tier is None else outcome.tier.value, outcome.pool, why)


def to_table(diff: DiffReport, *, limit: int, width: int, is_colored: bool) -> str:
    """Return the differences as text: the first pods, why they are refused or wait, and the sums of all."""
    screen = Screen(width=width, is_colored=is_colored)
    shown = diff.changes[:limit]
    if diff.changes:
        table = Grid("pod", number("GPUs"), prose("was"), prose("would be"))
        for change in shown:
            style = "bold red" if change.new.outcome == _REFUSED else ""
            was, now = _description(change.old, change.new), _description(change.new, change.old)
            table.add_row(Line(change.pod), Line(change.gpus), Line(was), Line(now, style=style))
        screen.show(table, "")
    screen.show(*(Line(f"{change.pod}: {change.new.reason}") for change in shown if change.new.reason))
    screen.show_rest(len(diff.changes) - limit, "pod")
    screen.show(Line(_sum(diff)))
    return screen.text


def _description(report: OutcomeReport, other: OutcomeReport) -> str:
    """Return the outcome, with the team and the pool where they differ."""
    is_placed = {_REFUSED, _QUEUED, _UNCOUNTED.outcome}.isdisjoint({report.outcome, other.outcome})
    team = f", team {report.team}" if report.team not in ("", other.team) else ""
    pool = f", {_pool(report)}" if report.pool != other.pool and is_placed else ""
    return f"{report.outcome}{team}{pool}"


def _pool(report: OutcomeReport) -> str:
    return "in no pool" if report.pool is None else f"pool {report.pool}" if report.pool else "the whole cluster"


def _sum(diff: DiffReport) -> str:
    kinds = Counter(_kind(change) for change in diff.changes)
    summary = "; ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing changes"
    return f"{plural(diff.pods, 'GPU pod')}: {summary}"


def _kind(change: ChangeReport) -> str:
    if change.old.outcome != change.new.outcome:
        return f"{change.old.outcome} to {change.new.outcome}"
    return "to another team" if change.old.team != change.new.team else "to another pool"
