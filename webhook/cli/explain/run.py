"""Runs `fairgate explain`: which pods, how each is decided, the output.

Explains the subjects that were found, each on the world that was read.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, assert_never

import click

from webhook.cli.addons import MOVES, ask
from webhook.cli.explain.command import Options
from webhook.cli.explain.outcome import ExplainedSubject, event_lines
from webhook.cli.explain.reclaim import (
    ClusterDetails,
    DetailsRequest,
    Evictions,
    Target,
    evicted_for,
    node_holds_of,
    read_details,
    read_target,
)
from webhook.cli.explain.report import report_of
from webhook.cli.explain.steps import to_steps
from webhook.cli.explain.subjects import (
    Subject,
    as_whole_gangs,
    find_pod,
    pods_of_manifests,
    subject_of_pod,
    subjects_of_workload,
)
from webhook.cli.grid import Line, print_error, print_problems
from webhook.cli.options import columns, is_colored
from webhook.cli.output import to_data
from webhook.cli.queue.rows import published_waits
from webhook.cli.review.answers import AmpleNodes
from webhook.cli.review.collect import read_sources
from webhook.cli.screen import Screen, progress
from webhook.cli.world_source import (
    WorldObjects,
    choose_policy,
    describe_world,
    limit_ranges,
    origin_of,
    read_objects,
    world_of,
)
from webhook.core.explain.explanation import Explanation, PoolStep, explain, unreadable
from webhook.core.explain.line_rows import EarlierWaits, QueueReader, QueueRow
from webhook.core.explain.pod_rows import left_text
from webhook.core.explain.policy_replay import requester_of
from webhook.core.model.amounts import NodeName, Uid, printable
from webhook.core.model.decision import Deny, Queue, as_asked
from webhook.core.model.reasons import waits_for
from webhook.core.reclaim.snapshot import Impossible
from webhook.core.world.minimums import Replicas
from webhook.core.world.world import World
from webhook.files import InputError
from webhook.kube.kinds.model import Unknown
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.expand import flattened
from webhook.kube.world_file.stream import Unreadable, read_stream
from webhook.server.settings import FileWorld, LiveCluster

_PRINTED: Final = re.compile(r"([a-z0-9][a-z0-9-]*)/([a-z0-9][a-z0-9.-]*)(?<!\.yaml)(?<!\.yml)(?<!\.json)")
"""A pod as commands print it, NAMESPACE/NAME, and no file of manifests."""

_NOT_LOOKED_AT: Final = "not looked at: you may not list all nodes and pods"


@dataclass(frozen=True, slots=True)
class Found:
    """The subjects, their world, and the details that were read.

    `name` is that of the source; `waits` reads how long earlier pods waited, where a pod waits in the queue.
    """

    subjects: Sequence[Subject | Unknown]
    reading: WorldObjects
    world: World
    details: ClusterDetails
    name: str
    waits: Callable[[], EarlierWaits]


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
    line, moves_of = _Line(found, now), ask(MOVES)
    others = None if moves_of is None else moves_of(reading.objects, now)
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
            if others is not None and (outlook is None or isinstance(outlook, Impossible)):
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
        """Return the place of a pod that waits in the queue; None for any other."""
        found = self._found
        waiting = found.world.waiting.get(Uid(uid))
        if waiting is None:
            return None
        if self._reader is None:
            is_known = found.reading.coverage.is_room_known
            self._reader = QueueReader(found.world, waits=found.waits(), is_room_known=is_known, now=self._now)
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

    The decision on a queued pod is that it waits, for what its `row` says. Where room is not known, every node has
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


# The steps of `fairgate explain`.


RUNS: Final = 0
DOES_NOT_RUN: Final = 1
NOT_JUDGED: Final = 2


class _NothingToExplainError(InputError):
    """The named object does not exist or cannot be read; `past` are the Events of Fairgate about it."""

    def __init__(self, problem: str, past: Iterable[str] = ()) -> None:
        super().__init__(problem)
        self.past = tuple(past)


def run(options: Options) -> int:
    """Explain; return the exit status."""
    try:
        with progress("Reading"):
            found = _find(options)
        explained, problems = explain_all(found, now=int(time.time()), user=options.user, node=options.node)
    except _NothingToExplainError as error:
        print_problems(error)
        for line in error.past:
            click.echo(f"  {printable(line)}", err=True)
        return NOT_JUDGED
    click.echo(_written(explained, found, options), nl=False)
    found.reading.coverage.print_note()
    if found.details.notes:
        print_error("; ".join(found.details.notes))
    for reason in problems:
        print_error(reason)
    if any(each.is_held_up for each in explained):
        return DOES_NOT_RUN
    return NOT_JUDGED if problems else RUNS


def _find(options: Options) -> Found:
    policy = choose_policy(options.policy, options.source)
    kinds = kind_table(policy.workloads.kinds)
    is_file = Path(options.what).exists()
    target = None if is_file else read_target(options.what, kinds)
    if target is None and not is_file and (printed := _PRINTED.fullmatch(options.what)):
        options = replace(options, namespace=printed[1])
        target = read_target(f"pod/{printed[2]}", kinds)
    manifests = _manifests(options.what) if target is None else ()
    reading = read_objects(options.source, namespaces=(options.namespace,))
    world = world_of(reading, policy, name=origin_of(options.source).name)
    is_room_known = reading.coverage.is_room_known
    if options.node is not None and is_room_known and world.fleet.get(NodeName(options.node)) is None:
        raise _NothingToExplainError(f"there is no node {options.node}")
    details = _details(options, target, has_names=reading.coverage.has_names)
    if target is None:
        where, ranges = options.namespace, limit_ranges(options.source, namespaces=(options.namespace,))
        made = pods_of_manifests(manifests, namespace=where, world=world, kinds=kinds, limit_ranges=ranges)
        subjects = list(made)
    elif target.is_pod:
        subjects = [_pod(target.name, reading, options, world, details)]
    else:
        document = _workload(target, options, details)
        known = reading.objects if reading.coverage.covers("pods", options.namespace) else None
        subjects = list(subjects_of_workload(document, known, namespace=options.namespace, world=world, kinds=kinds))
    name = origin_of(options.source).name
    return Found(subjects, reading, world, details, name, partial(published_waits, options.source))


def _details(options: Options, target: Target | None, *, has_names: bool) -> ClusterDetails:
    match options.source:
        case FileWorld():
            return ClusterDetails()
        case LiveCluster(kubeconfig=kubeconfig):
            request = DetailsRequest(target, options.namespace, options.fairgate_namespace, has_names)
            return read_details(kubeconfig, request)
        case _ as never:
            assert_never(never)


def _pod(name: str, reading: WorldObjects, options: Options, world: World, details: ClusterDetails) -> Subject:
    pod = find_pod(reading.objects, name, namespace=options.namespace)
    if pod is not None:
        return subject_of_pod(pod, namespace=options.namespace, world=world)
    if not reading.coverage.covers("pods", options.namespace):
        raise _NothingToExplainError(f"you may not list the pods of namespace {options.namespace}")
    left = left_text(options.namespace, name, world)
    if details.events:
        past = event_lines(details.events, now=time.time())
        gone = left and f": {left}"
        raise _NothingToExplainError(
            f"pod {options.namespace}/{name} has ended or was deleted{gone}; its Events:", past
        )
    if left:
        raise _NothingToExplainError(f"there is no pod {options.namespace}/{name}: {left}")
    raise _NothingToExplainError(f"there is no pod {name} in namespace {options.namespace}; try -n NAMESPACE")


def _workload(target: Target, options: Options, details: ClusterDetails) -> Mapping[str, Any]:
    if isinstance(options.source, FileWorld):
        raise _NothingToExplainError(
            f"a world file holds no {target.kind.resource}: name the manifest of {target.kind.kind} {target.name}, or "
            "explain it from the cluster"
        )
    if details.workload is None:
        missing = f"{target.kind.kind} {target.name} was not found in namespace {options.namespace}"
        raise _NothingToExplainError(f"{missing}; {details.why_no_workload or 'try -n NAMESPACE'}")
    return details.workload


def _manifests(path: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_objects(path))


def _objects(path: str) -> Iterator[dict[str, object]]:
    for source in read_sources((path,), sys.stdin.buffer):
        if source.problem is not None:
            raise _NothingToExplainError(f"{source.name}: {source.problem}; name a file, or KIND/NAME such as pod/NAME")
        for document in read_stream(source.content):
            if isinstance(document, Unreadable):
                raise _NothingToExplainError(f"{source.name}:{document.line}: not valid YAML: {document.problem}")
            yield from (dict(each) for each in flattened((document.value,)))


def _written(explained: list[ExplainedSubject], found: Found, options: Options) -> str:
    if options.layout.is_data:
        return to_data([report_of(each) for each in explained], options.layout)
    world, width, colored = found.world, columns(), is_colored()
    parts = [to_steps(each, policy_hash=world.policy.hash, width=width, is_colored=colored) for each in explained]
    screen = Screen(width=width, is_colored=colored)
    screen.show(Line(describe_world(origin_of(options.source), world)))
    return "\n".join([*parts, screen.text])
