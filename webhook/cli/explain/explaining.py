"""Explains the subjects that were found, each on the world that was read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.cli.explain.beside import ClusterDetails
from webhook.cli.explain.other_pods import OtherPods
from webhook.cli.explain.outcome import ExplainedSubject
from webhook.cli.explain.reclaim import Evictions, evicted_for, node_holds_of
from webhook.cli.explain.subjects import Subject
from webhook.cli.explain.whole import as_whole_gangs
from webhook.cli.review.ample_nodes import AmpleNodes
from webhook.cli.world_source import WorldObjects, world_of
from webhook.core.explain.explanation import Explanation, PoolStep, explain, unreadable
from webhook.core.explain.past import Past
from webhook.core.explain.policy_replay import requester_of
from webhook.core.explain.queue_rows import QueueReader, QueueRow
from webhook.core.model.decision import Deny, Queue
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.original_request import as_asked
from webhook.core.model.reason import waits_for
from webhook.core.reclaim.reclaim_outlook import Impossible
from webhook.core.world.minimums import Replicas
from webhook.core.world.world import World
from webhook.kube.kinds.model import Unknown
from webhook.simulation.forecast.forecast import read_line

_NOT_LOOKED_AT: Final = "not looked at: you may not list all nodes and pods"


@dataclass(frozen=True, slots=True)
class Found:
    """The subjects, their world, and the details that were read.

    `name` is that of the source; `past` reads what likely starts are made of, where a pod waits in line.
    """

    subjects: Sequence[Subject | Unknown]
    reading: WorldObjects
    world: World
    details: ClusterDetails
    name: str
    past: Callable[[], Past]


def explain_all(
    found: Found, *, now: int, user: str = "", node: str | None = None, has_reclaim: bool = True
) -> tuple[list[ExplainedSubject], list[str]]:
    """Explain each subject; return also why some have no explanation. The world is changed.

    Without `has_reclaim`, what reclaim can do is left out: that takes all pods of the reading, and a second world.
    """
    explained: list[ExplainedSubject] = []
    problems: list[str] = []
    reading, world = found.reading, found.world
    is_room_known = reading.coverage.is_room_known
    ample_nodes = None if is_room_known else AmpleNodes(world)
    node_holds, evictions = node_holds_of(reading.objects), None
    line, others = _Line(found, now), OtherPods(reading.objects, now)
    alone: list[tuple[Subject, QueueRow | None, Explanation]] = []
    replicas = {subject.title: _replicas(subject, world) for subject in found.subjects if isinstance(subject, Subject)}
    for subject in found.subjects:
        if isinstance(subject, Unknown):
            problems.append(subject.reason)
            continue
        row = line.row(_uid(subject))
        alone.append((subject, row, _explained(subject, row, world, ample_nodes, user=user, node=node)))
    explanations = [explanation for _, _, explanation in alone]
    if ample_nodes is None:
        explanations = as_whole_gangs([subject for subject, _, _ in alone], explanations, world)
    for (subject, row, _), explanation in zip(alone, explanations, strict=True):
        uid = _uid(subject)
        outlook = moves = None
        if (
            has_reclaim
            and reading.coverage.has_names
            and not (explanation.runs_now if subject.existing is None else subject.existing.node)
        ):
            if evictions is None:  # a second world: only where a pod waits, or would
                fresh = world_of(reading, world.policy, name=found.name)
                evictions = Evictions.of(reading.objects, fresh, found.details, node_holds)
            outlook = evictions.outlook(explanation, uid, now=now)
            if outlook is None or isinstance(outlook, Impossible):
                moves = others.room_for(subject, explanation, evictions)
        explained.append(
            ExplainedSubject(
                subject,
                explanation,
                outlook,
                evicted_for(uid, node_holds),
                found.details,
                now,
                line=row,
                moves=moves,
                are_moves_made=world.policy.is_enforced and world.policy.defragment.on_demand,
                replicas=replicas[subject.title],
            )
        )
    return explained, problems


class _Line:
    """The line of the world, read where the first pod that waits in it is explained."""

    def __init__(self, found: Found, now: int) -> None:
        self._found = found
        self._now = now
        self._reader: QueueReader | None = None

    def row(self, uid: str) -> QueueRow | None:
        """Return the place of a pod that waits in line; None for any other."""
        found = self._found
        waiting = found.world.waiting.get(Uid(uid))
        if waiting is None:
            return None
        if self._reader is None:
            is_known = found.reading.coverage.is_room_known
            self._reader = read_line(
                found.world, found.past(), now=self._now, clock=time.process_time, is_room_known=is_known
            )
        return self._reader.row(waiting)


def _uid(subject: Subject) -> str:
    """Return the UID of a pod that exists; "" where it does not exist."""
    return "" if subject.existing is None else subject.existing.uid


def _replicas(subject: Subject, world: World) -> Replicas | None:
    """Return the replicas of the workload of a pod that exists, where it has a minimum."""
    pod = world.pod(Uid(_uid(subject)))
    return None if pod is None else world.minimums.of(pod.replica.workload)


def _explained(
    subject: Subject, row: QueueRow | None, world: World, ample_nodes: AmpleNodes | None, *, user: str, node: str | None
) -> Explanation:
    """Return the explanation of a pod as if it were created now; one that exists is removed from the world first.

    The decision on a pod in line is that it waits, for what its `row` says. Where room is not known, every node has
    room.
    """
    if isinstance(subject.template, Deny):
        return unreadable(subject.namespace, subject.template, world)
    pod, waiting, uid = subject.template.pod, None, _uid(subject)
    if uid:
        charge, waiting = world.charge_of(Uid(uid)), world.waiting.get(Uid(uid))
        known = charge.user if charge is not None else waiting.user if waiting is not None else None
        user = user or known or ""
        world.remove_pod(Uid(uid))
        pod = as_asked(pod, world.policy)._replace(is_queued=False)
    asked = None if node is None else NodeName(node)
    if ample_nodes is None:
        found = explain(pod, requester_of(pod, user), world, node=asked)
    else:
        ample_nodes.make_room(pod)
        found = explain(pod, requester_of(pod, user), world)
        steps = (PoolStep(step.pool, step.closed or _NOT_LOOKED_AT, None) for step in found.pools)
        found = replace(found, pools=tuple(steps))
    return found if row is None else replace(found, decision=_waits(row, world))


def _waits(row: QueueRow, world: World) -> Queue:
    waiting = row.waiting
    reason = waits_for(row.code, row.reason.statement)
    return Queue(waiting.team, waiting.pod.demand, reason, world.policy.hash, waiting.user, waiting.pod.requested_tier)
