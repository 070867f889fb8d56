"""From recorded rows to what a simulation needs: the pods that came, the world around them, the policy in force.

`fairgate simulate` reads a history with it, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.admission.queueing import as_requested
from webhook.core.model import decision_annotation
from webhook.core.model.names import Namespace, TeamName, Uid, User
from webhook.core.model.original_request import as_asked
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.history.schema import HistoryError
from webhook.history.trace_row import ObjectRow, PodRow, PolicyRow, Trace
from webhook.kube.world_file.world_file import WorldFileError, parse_objects
from webhook.policy.load import parse
from webhook.policy.problems import PolicyError
from webhook.simulation.simulate import Template, read_template
from webhook.simulation.task import Task

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
        parse_objects(objects, policy.resources, name="the history").fill(world)
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
