"""`fairgate policy diff` and `from-quotas`.

`fairgate policy from-quotas`: print a policy with the limits of existing ResourceQuotas.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Annotated, BinaryIO, Final, Literal, NamedTuple

import click
import msgspec

from webhook.cli.grid import Grid, Line, number, print_error, prose
from webhook.cli.screen import Screen
from webhook.cli.world_source import Objects, WorldObjects, world_of
from webhook.core.explain.policy_replay import (
    PolicyOutcome,
    Running,
    full_limits,
    policy_outcomes,
    reload,
    running_outcome,
)
from webhook.core.model.amounts import UNLIMITED, Namespace, NodeName, format_gpus, plural, printable
from webhook.core.model.decision import as_asked
from webhook.core.model.demand import Demand
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import DefragmentRules, IdleAction, NotifyRules, NotifyTarget
from webhook.core.model.reasons import cause_of, refusal_text, waits_for
from webhook.core.quota.shares import is_hidden
from webhook.core.world.world import World
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects import keys
from webhook.kube.workloads.expand import flattened
from webhook.kube.workloads.unknown_kinds import QuotaShare, shares_of
from webhook.policy.sections import BUILT_IN
from webhook.yaml_text import DocumentError, read_documents

_HEAD = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
"""
_TAIL = """defaults:
  unknownTeam: preemptible  # namespaces without a quota keep working
"""


@click.command(
    "from-quotas",
    epilog="""\b
Examples:
  kubectl get resourcequotas --all-namespaces -o json | fairgate policy from-quotas - > policy.yaml

\b
Exit status: 0 printed, 1 no quota limits GPUs, 2 the quotas cannot be read.""",
)
@click.argument("quotas", metavar="FILE|-", type=click.File("rb"))
def from_quotas(quotas: BinaryIO) -> None:
    """Print a policy with the limits of existing ResourceQuotas.

    Each namespace with a quota on GPUs becomes a team whose limit equals its guaranteed share, so no team borrows yet.
    What has no counterpart is printed to standard error.
    """
    try:
        found = flattened(read_documents(quotas.read()))
        shares = shares_of((each for each in found if each.get("kind") == "ResourceQuota"), BUILT_IN)
    except (DocumentError, ValueError) as error:
        print_error(f"the quotas cannot be read: {error}")
        sys.exit(2)
    for line in (line for share in shares for line in share.left_out):
        click.echo(printable(f"left out: {line}"), err=True)
    teams = [share for share in shares if share.gpus]
    if not teams:
        print_error("no quota limits a resource that counts as a GPU")
        sys.exit(1)
    click.echo(_written(teams), nl=False)


def _written(shares: Iterable[QuotaShare]) -> str:
    return _HEAD + "".join(map(_team, shares)) + _TAIL


def _team(share: QuotaShare) -> str:
    gpus = format_gpus(share.gpus)
    return (
        f"  - name: {share.namespace}\n"
        f"    namespaces: [{share.namespace}]\n"
        f"    gpus: {{guaranteed: {gpus}, limit: {gpus}}}\n"
    )


# The effect of a policy edit on pods that run or wait in the queue: a reload is played, and the differences are shown.


_REFUSED: Final = "refused"
_QUEUED: Final = "queued"


_Again = Literal["allowed", "queued", "refused"]


class OutcomeReport(msgspec.Struct):
    """The outcome of a pod under a policy: the team charged, and its tier; a queued one may be refused."""

    team: str
    outcome: Annotated[str, msgspec.Meta(description="guaranteed, preemptible, queued, refused or counted")]
    pool: Annotated[str | None, msgspec.Meta(description="empty for the whole cluster, null where there is none")]
    reason: str
    again: Annotated[
        _Again, msgspec.Meta(description="what would happen if a running pod were created again; has the reason")
    ] = "allowed"


class ChangeReport(msgspec.Struct):
    """A pod whose outcome differs under the new policy."""

    pod: str
    gpus: str
    node: str | None
    old: OutcomeReport
    new: OutcomeReport


class IdleReport(msgspec.Struct):
    """A pod that does not use its GPUs, and what follows under both policies."""

    pod: str
    team: str
    old: list[IdleAction]
    new: list[IdleAction]


class DiffReport(msgspec.Struct, omit_defaults=True):
    """What the new policy changes for the pods of a world, in the order of their names."""

    changes: list[ChangeReport]
    pods: Annotated[int, msgspec.Meta(description="GPU pods that were judged")]
    moves: Annotated[
        list[str], msgspec.Meta(description="what changes of section defragment; left out if nothing does")
    ] = []
    idle: Annotated[
        list[IdleReport], msgspec.Meta(description="idle pods for which something else follows under the new policy")
    ] = []
    notify: Annotated[
        list[str], msgspec.Meta(description="what changes of messages to people; left out if nothing does")
    ] = []
    full: Annotated[
        list[str], msgspec.Meta(description="limits that leave no GPU under the new policy, and left some before")
    ] = []


class _Judged(NamedTuple):
    """A pod and its outcome; `node` is None for one on no node, and in the queue."""

    demand: Demand
    node: NodeName | None
    outcome: OutcomeReport
    is_in_line: bool = False


def compare(found: WorldObjects, old: Policy, new: Policy, *, name: str, only: Collection[str] = ()) -> DiffReport:
    """Return the pods of a world whose outcome differs once `new` replaces `old`. Raises WorldError.

    If there are any, `only` the pods of these namespaces are shown.
    """
    sides = _judged(found, old, old, name=name), _judged(found, old, new, name=name)
    before, after = (dict(side.pods) for side in sides)
    changes = []
    judged = {key: pod for key, pod in (before | after).items() if not only or key.partition("/")[0] in only}
    for key in sorted(judged):
        pod = judged[key]
        was, now = (side[key].outcome if key in side else _UNCOUNTED for side in (before, after))
        shown = _as_it_is(was, pod)
        if _differs(was, now) and _differs(shown, now):
            changes.append(ChangeReport(key, format_gpus(pod.demand.gpus), pod.node, shown, now))
    return DiffReport(
        changes,
        len(judged),
        moves=list(_move_changes(old.defragment, new.defragment)),
        idle=_idle_changes(found, old, new, name=name, only=only),
        notify=list(_notify_changes(old.notify, new.notify)),
        full=[f"{name}: {numbers}" for name, numbers in sides[1].full.items() if name not in sides[0].full],
    )


def _move_changes(old: DefragmentRules, new: DefragmentRules) -> Iterator[str]:
    """Yield the rules of moves that differ, by their names in the file."""
    for rule in fields(DefragmentRules):
        was, now = (getattr(each, rule.name) for each in (old, new))
        if was != now:
            unit = " s" if rule.name.endswith("_seconds") or "_seconds_" in rule.name else ""
            yield f"{_IN_FILE[rule.name]} {_rule_text(now, unit)}, was {_rule_text(was, unit)}"


_IN_FILE: Final = {
    "on_demand": "onDemand",
    "window": "window",
    "moves_per_hour": "movesPerHour",
    "moves_per_workload": "movesPerWorkload",
    "lost_seconds_per_gpu": "lostPerGpu",
    "minimum_runtime_seconds": "minimumRuntime",
    "notice_seconds": "notice",
}


def _rule_text(value: object, unit: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else "unlimited" if value is UNLIMITED else f"{value}{unit}"


def _notify_changes(old: NotifyRules, new: NotifyRules) -> Iterator[str]:
    was, now = ({target.name: target for target in rules.targets} for rules in (old, new))
    for name in sorted(was | now):
        if name not in was or name not in now:
            yield f"target {name} {'is new' if name in now else 'no longer gets messages'}"
        elif changed := [each.name for each in fields(NotifyTarget) if _of(was[name], each) != _of(now[name], each)]:
            yield f"target {name} changes: {', '.join(changed)}"
    if replace(old, targets=()) != replace(new, targets=()):
        yield "what is worth a message, or the name of the cluster, changes"


def _of(target: NotifyTarget, field: Field[object]) -> object:
    return getattr(target, field.name)


_UNCOUNTED = OutcomeReport("", "not counted", None, "")
"""The outcome of a pod none of whose resources a policy counts."""


def _differs(was: OutcomeReport, now: OutcomeReport) -> bool:
    return _compared(was) != _compared(now) or (was.pool != now.pool and was.again == now.again == "allowed")


def _compared(report: OutcomeReport) -> tuple[str, str, str]:
    return report.team, report.outcome, report.again


def _as_it_is(was: OutcomeReport, pod: _Judged) -> OutcomeReport:
    """Return the outcome under the old policy: a queued pod is queued, also if it starts with the next release."""
    is_queued = pod.is_in_line and was.outcome != _REFUSED
    return OutcomeReport(was.team, _QUEUED, None, was.reason) if is_queued else was


@dataclass(frozen=True, slots=True)
class _Side:
    """What a policy makes of the pods, and the limits that leave no GPU."""

    pods: Mapping[str, _Judged]
    full: Mapping[str, str]


def _judged(found: WorldObjects, old: Policy, policy: Policy, *, name: str) -> _Side:
    """Replace the old policy of a world by another one, or by itself."""
    full = world_of(found, old, name=name, keep_nodes=True)
    empty = world_of(found.without_pods, policy, name=name, keep_nodes=True)
    waiting = [each.pod for each in full.waiting.all() if not is_hidden(each.pod.namespace)]
    line = reload(full, policy, is_room_known=found.coverage.is_room_known)
    running = list(_running(found.objects, full))
    again = policy_outcomes(running, empty)
    pods: dict[str, _Judged] = {
        f"{pod.namespace}/{pod.name}": _Judged(
            pod.demand, pod.node, _running_report(running_outcome(pod, full, again=again[pod.uid]))
        )
        for pod in (each.resident for each in running)
    } | {
        f"{pod.namespace}/{pod.name}": _Judged(pod.demand, None, _report(line[pod.uid]), is_in_line=True)
        for pod in waiting
    }
    return _Side(pods, dict(full_limits(full)))


def _running(found: Objects, world: World) -> Iterator[Running]:
    residents = {(pod.namespace, pod.name): pod for pod in world.pods() if pod.demand.gpus}
    for each in found:
        metadata = mapping(each.get("metadata"))
        namespace = Namespace(text(metadata.get("namespace")) or "default")
        resident = residents.get((namespace, text(metadata.get("name")))) if each.get("kind") == "Pod" else None
        template = None if resident is None else read_template(each, namespace=namespace, world=world)
        if resident is not None and isinstance(template, Template):
            yield Running(resident, as_asked(template.pod, world.policy))


def _idle_changes(
    found: WorldObjects, old: Policy, new: Policy, *, name: str, only: Collection[str]
) -> list[IdleReport]:
    """Return the pods that the evictor marked as idle, and for which something else follows under the new policy."""
    if old.idle is None and new.idle is None:
        return []
    world = world_of(found, new, name=name, keep_nodes=True)
    pods = [pod for pod in map(world.pod, world.stages.idle) if pod is not None]
    rows = [
        IdleReport(
            f"{pod.namespace}/{pod.name}",
            pod.team_label or "",
            *(sorted(policy.on_idle(pod.team_label)) for policy in (old, new)),
        )
        for pod in pods
        if not only or pod.namespace in only
    ]
    return sorted((row for row in rows if row.old != row.new), key=lambda row: row.pod)


def _running_report(outcome: PolicyOutcome) -> OutcomeReport:
    """Describe a running pod: it keeps running, whatever would happen if it were created again."""
    is_again = outcome.refusals or outcome.queued is not None
    held = _report(outcome._replace(refusals=(), queued=None))
    if not is_again:
        return held
    again = _report(outcome)
    held.again, held.reason = "refused" if outcome.refusals else "queued", again.reason
    return held


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
    screen.show(*(Line(f"{_subject(change)}: {change.new.reason}") for change in shown if change.new.reason))
    screen.show_rest(len(diff.changes) - limit, "pod")
    for row in diff.idle[:limit]:
        was, now = (", ".join(each) or "nothing" for each in (row.old, row.new))
        screen.show(Line(f"{row.pod} does not use its GPUs: {was} followed, and {now} would"))
    screen.show(*(Line(f"no GPU is left under the limit of {text}") for text in diff.full))
    if any(change.node is not None and _is_moved(change) for change in diff.changes):
        screen.show(Line(f"Running pods that are charged to another team keep their label {keys.TEAM}"))
    screen.show(Line(_sum(diff)), *(Line(f"defragment: {text}") for text in diff.moves))
    screen.show(*(Line(f"messages to people: {text}") for text in diff.notify))
    return screen.text


def _subject(change: ChangeReport) -> str:
    return change.pod if change.new.again == "allowed" else f"{change.pod}, if it is created again"


def _is_moved(change: ChangeReport) -> bool:
    return "" not in (change.old.team, change.new.team) and change.old.team != change.new.team


def _description(report: OutcomeReport, other: OutcomeReport) -> str:
    """Return the outcome, with the team and the pool where they differ."""
    outcomes = {report.outcome, report.again, other.outcome, other.again}
    is_placed = {_REFUSED, _QUEUED, _UNCOUNTED.outcome}.isdisjoint(outcomes)
    team = f", team {report.team}" if report.team not in ("", other.team) else ""
    pool = f", {_pool(report)}" if report.pool != other.pool and is_placed else ""
    again = f"; {report.again} if created again" if report.again not in ("allowed", other.again) else ""
    return f"{report.outcome}{team}{pool}{again}"


def _pool(report: OutcomeReport) -> str:
    return "in no pool" if report.pool is None else f"pool {report.pool}" if report.pool else "the whole cluster"


def _sum(diff: DiffReport) -> str:
    kinds = Counter(_kind(change) for change in diff.changes)
    summary = "; ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing changes"
    return f"{plural(diff.pods, 'GPU pod')}: {summary}"


def _kind(change: ChangeReport) -> str:
    if change.old.outcome != change.new.outcome:
        return f"{change.old.outcome} to {change.new.outcome}"
    if change.old.again != change.new.again:
        return f"{change.new.again} if created again"
    return "to another team" if _is_moved(change) else "to another pool"
