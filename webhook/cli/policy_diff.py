"""The effect of a policy edit on running pods: each pod is judged under both policies, and the differences shown."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from webhook.cli.formatting import plural
from webhook.cli.screen import Screen, grid
from webhook.cli.terminal import Line
from webhook.cli.world_source import Objects, WorldObjects, world_of
from webhook.core.explain.policy_replay import PolicyOutcome, Running, policy_outcomes
from webhook.core.model.amount import format_gpus
from webhook.core.model.names import Namespace
from webhook.core.model.original_request import as_asked
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy
from webhook.core.model.reason import refusal_text
from webhook.core.world.world import World
from webhook.kube.kinds.model import mapping, text
from webhook.simulation.simulate import Template, read_template

_REFUSED = "refused"


class FateReport(msgspec.Struct):
    """The outcome of a pod under a policy."""

    team: str
    outcome: Annotated[str, msgspec.Meta(description="guaranteed, preemptible, refused or counted")]
    pool: Annotated[str | None, msgspec.Meta(description="empty for the whole cluster, null where there is none")]
    reason: str


class ChangeReport(msgspec.Struct):
    """A pod whose outcome differs under the new policy."""

    pod: str
    gpus: str
    node: str | None
    old: FateReport
    new: FateReport


class DiffReport(msgspec.Struct):
    """What the new policy changes for the pods of a world, in the order of their names."""

    changes: list[ChangeReport]
    pods: Annotated[int, msgspec.Meta(description="GPU pods that were judged")]


class _Judged(NamedTuple):
    pod: Resident
    fate: FateReport


def compare(found: WorldObjects, old: Policy, new: Policy, *, name: str) -> DiffReport:
    """Return the pods of a world whose outcome differs between two policies. Raises WorldError."""
    before, after = _fates(found, old, name=name), _fates(found, new, name=name)
    changes = []
    judged = before | after
    for key in sorted(judged):
        pod = judged[key].pod
        was, now = (side[key].fate if key in side else _UNCOUNTED for side in (before, after))
        if (was.team, was.outcome, was.pool) != (now.team, now.outcome, now.pool):
            changes.append(ChangeReport(key, format_gpus(pod.demand.gpus), pod.node, was, now))
    return DiffReport(changes, len(judged))


_UNCOUNTED = FateReport("", "not counted", None, "")
"""The outcome of a pod none of whose resources a policy counts."""


def _fates(found: WorldObjects, policy: Policy, *, name: str) -> dict[str, _Judged]:
    full = world_of(found, policy, name=name, keep_nodes=True)
    empty = world_of(found.without_pods, policy, name=name, keep_nodes=True)
    running = list(_running(found.objects, full))
    judged = policy_outcomes(running, empty)
    return {
        f"{each.resident.namespace}/{each.resident.name}": _Judged(each.resident, _report(judged[each.resident.uid]))
        for each in running
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


def _report(fate: PolicyOutcome) -> FateReport:
    if fate.refusals:
        return FateReport(fate.team, _REFUSED, fate.pool, refusal_text(fate.refusals))
    return FateReport(fate.team, "counted" if fate.tier is None else fate.tier.value, fate.pool, "")


def to_table(diff: DiffReport, *, width: int, is_colored: bool) -> str:
    """Return the differences as text: each pod, the reasons of refusals, and the sums."""
    console = Screen(width=width, is_colored=is_colored)
    if diff.changes:
        table = grid("pod", ">GPUs", "was", "would be")
        for change in diff.changes:
            style = "bold red" if change.new.outcome == _REFUSED else ""
            was, now = _description(change.old, change.new), _description(change.new, change.old)
            table.add_row(Line(change.pod), Line(change.gpus), Line(was), Line(now, style=style))
        console.print(table, "")
    for change in diff.changes:
        if change.new.reason:
            console.print(Line(f"{change.pod}: {change.new.reason}"), soft_wrap=not is_colored)
    console.print(Line(_sum(diff)), soft_wrap=not is_colored)
    return console.text


def _description(fate: FateReport, other: FateReport) -> str:
    """Return the outcome, with the team and the pool where they differ."""
    is_refused = _REFUSED in {fate.outcome, other.outcome}
    team = f", team {fate.team}" if fate.team != other.team else ""
    pool = f", {_pool(fate)}" if fate.pool != other.pool and not is_refused else ""
    return f"{fate.outcome}{team}{pool}"


def _pool(fate: FateReport) -> str:
    return "in no pool" if fate.pool is None else f"pool {fate.pool}" if fate.pool else "the whole cluster"


def _sum(diff: DiffReport) -> str:
    kinds = Counter(_kind(change) for change in diff.changes)
    summary = "; ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing changes"
    return f"{plural(diff.pods, 'GPU pod')}: {summary}"


def _kind(change: ChangeReport) -> str:
    if change.old.outcome != change.new.outcome:
        return f"{change.old.outcome} to {change.new.outcome}"
    return "to another team" if change.old.team != change.new.team else "to another pool"
