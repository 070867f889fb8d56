"""Loads, options, history.

A history of `fairgate serve --history` as what a simulation begins with: its pods are a trace, its nodes a world.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from webhook.addons.history.reader import read_trace as read_recorded
from webhook.addons.history.reader import recorded_range
from webhook.addons.history.store import HistoryError, Trace
from webhook.addons.simulation.replay.recorded import RecordedPod, policy_in_force, policy_of, recorded_pods, world_of
from webhook.addons.simulation.simulate.command import NodeKind, Options
from webhook.addons.simulation.traces.formats import (
    MAX_SECONDS,
    NodeRow,
    Row,
    TraceError,
    nodes_of,
    read_nodes,
    with_shares,
)
from webhook.addons.simulation.traces.load import read_trace
from webhook.cli.world_source import Objects, choose_policy, origin_of, read_objects
from webhook.core.model.amounts import NodeName
from webhook.core.model.node import Node
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.watched.world_kinds import AUTOSCALERS, NAMESPACES, PRIORITY_CLASSES
from webhook.kube.workloads.unknown_kinds import KIND
from webhook.kube.world_file.world_file import add_objects
from webhook.policy.watch import load
from webhook.server.settings import FileWorld

_MAGIC: Final = b"SQLite"
_WHOLE: Final = 1000
_SURROUNDINGS: Final = frozenset({"Namespace", "PriorityClass", KIND})


@dataclass(frozen=True, slots=True)
class TraceInput:
    """The rows of a trace, and how many tasks were left out, by the reason. A history has objects around its pods."""

    rows: list[Row] = field(default_factory=list)
    surroundings: Objects = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def is_history(path: Path) -> bool:
    """Whether a file is a database rather than text; a file that cannot be read is none."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_history(path: Path, *, otherwise: Policy) -> TraceInput:
    """Return the pods of a history; `otherwise` is the policy of those that recorded none. Raises InputError.

    Pods that came before the record began come at its beginning, with the rest of their time.
    """
    begin, end = recorded_range(path)
    trace = read_recorded(path, begin, end)
    world = world_of(trace, policy_in_force(trace, otherwise=otherwise))
    found = recorded_pods(trace, world, until=end)
    objects = tuple(each for each in _objects(trace) if each.get("kind") in _SURROUNDINGS)
    if not found.pods:
        raise TraceError(f"{path}: has no pod that can be decided again")
    rows = [_row(number, each, begin) for number, each in enumerate(found.pods, start=1)]
    return TraceInput(rows, objects, found.left_out)


def objects_of(path: Path) -> Objects:
    """Return the recorded nodes, namespaces, PriorityClasses and autoscalers. Raises HistoryError."""
    return _objects(read_recorded(path, *recorded_range(path)))


def recorded_policy(path: Path) -> Policy:
    """Return the policy that was in force last. Raises HistoryError."""
    return policy_of(read_recorded(path, *recorded_range(path)).policies, advice="give --policy DIR")


def _objects(trace: Trace) -> tuple[Mapping[str, Any], ...]:
    try:
        found = [msgspec.json.decode(row.object) for row in trace.objects if row.object]
    except msgspec.DecodeError as error:
        raise HistoryError(f"the history has an object that cannot be read: {error}") from error
    return tuple(each for each in found if isinstance(each, dict))


def _row(number: int, found: RecordedPod, begin: float) -> Row:
    row, pod = found.row, found.pod
    ran_before = max(0.0, begin - row.bound) if row.bound else 0.0
    gpus = math.ceil(row.gpus)
    return Row(
        number,
        row.uid,
        gpus,
        int(max(row.created, begin)),
        min(MAX_SECONDS, max(1, round(found.seconds - ran_before))),
        milli=max(1, round(row.gpus / gpus * _WHOLE)) if gpus else _WHOLE,
        team=row.team,
        namespace=row.namespace,
        user=row.user,
        gang="" if pod.gang is None else pod.gang.id,
        priority=found.priority,
        pod=pod,
    )


# Reads what a simulation begins with: the policies, the world under each, the tasks of a trace.


MAX_BYTES: Final = 512 << 20
"""The largest trace that is read."""

_IN_FORCE: Final = "in force"
_AROUND: Final = frozenset((NAMESPACES.kind, PRIORITY_CLASSES.kind, AUTOSCALERS.kind))
_CPU_OF_GPU: Final = 16_000
_MEMORY_OF_GPU: Final = 256 << 30


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, by the name that reports use."""

    name: str
    policy: Policy


class Worlds:
    """Makes fresh worlds of one source, under any policy, with nodes added. Raises WorldError and TraceError."""

    def __init__(self, options: Options, trace: TraceInput) -> None:
        self._keeps_pods = options.keeps_pods
        self._name = origin_of(options.source).name
        self._nodes: list[NodeRow] | None = None
        self._objects: Objects = ()
        self._is_live = False
        self._surroundings = trace.surroundings
        self._is_shared = any(row.milli < _WHOLE and row.gpus and row.pod is None for row in trace.rows)
        path = options.source.path if isinstance(options.source, FileWorld) else None
        if path is not None and path.suffix.lower() == ".csv":
            with opened(path) as file:
                self._nodes = read_nodes(file, name=self._name)
        elif path is not None and is_history(path):
            self._objects = objects_of(path)
        else:
            read = read_objects(options.source)
            self._objects, self._is_live = read.objects, bool(read.read_at)

    @property
    def rounds_up(self) -> bool:
        """Whether tasks that take a part of a GPU take a whole one, since the nodes of a cluster have whole ones."""
        return self._is_shared and self._nodes is None

    def make(self, policy: Policy, *, bought: NodeKind | None = None, count: int = 0) -> World:
        """Return a new world under a policy."""
        is_shared = self._is_shared and self._nodes is not None
        world = World(with_shares(policy) if is_shared else policy)
        self._surround(world)
        if self._nodes is not None:
            for node in nodes_of(self._nodes, is_shared=is_shared):
                world.set_node(node)
        else:
            self._fill(world)
        for node in _bought(bought, count, world, is_shared=is_shared):
            world.set_node(node)
        world.sort_nodes()
        return world

    def _surround(self, world: World) -> None:
        """Add what is around recorded pods; what the world itself has of it is read later, and counts."""
        listed = [each for each in self._surroundings if each.get("kind") in _AROUND]
        add_objects(world, listed, name=self._name)

    def _fill(self, world: World) -> None:
        # no one starts what is charged: such pods are queued, and no one gives up later what is kept for a moment
        add_objects(world, self._objects, name=self._name, has_charges=False, is_live=self._is_live)
        for node in [node for node in world.fleet.nodes() if node.unheld is not node]:
            world.set_node(node.unheld)
        if not self._keeps_pods:
            waiting = [pod.uid for pod in world.waiting.all()]
            for uid in [*waiting, *(pod.uid for pod in world.pods() if pod.demand.gpus)]:
                world.remove_pod(uid)


def _bought(kind: NodeKind | None, count: int, world: World, *, is_shared: bool) -> list[Node]:
    """Return new nodes: like one of the world that has this model and size, or with plenty of cpu and memory."""
    if kind is None or not count:
        return []
    weights = world.policy.resources
    alike = next(
        (
            node
            for node in world.fleet.nodes()
            if node.model == kind.model and any(offer.pieces == kind.gpus for offer in node.offers(weights))
        ),
        None,
    )
    if alike is not None:
        names = [NodeName(f"bought-{number:05}") for number in range(count)]
        labels = [{**alike.labels, "kubernetes.io/hostname": name} for name in names]
        pairs = zip(names, labels, strict=True)
        return [replace(alike, name=name, labels=each, taints=()) for name, each in pairs]
    row = NodeRow("", kind.gpus, kind.model, kind.gpus * _CPU_OF_GPU, kind.gpus * _MEMORY_OF_GPU)
    return nodes_of((row._replace(name=f"bought-{n:05}") for n in range(count)), is_shared=is_shared)


def read_policies(options: Options) -> list[NamedPolicy]:
    """Read the policies. Raises PolicyError, PolicyUnreadable, WorldError."""
    if not options.policies:
        if isinstance(options.source, FileWorld) and is_history(options.source.path):
            return [NamedPolicy("recorded", recorded_policy(options.source.path))]
        return [NamedPolicy(_IN_FORCE, choose_policy(None, options.source))]
    short = [path.name or str(path) for path in options.policies]
    names = short if len(set(short)) == len(short) else [str(path) for path in options.policies]
    return [NamedPolicy(name, load(path)) for name, path in zip(names, options.policies, strict=True)]


def read_trace_input(options: Options, policies: Sequence[NamedPolicy]) -> TraceInput:
    """Read the trace, if there is one. Raises TraceError."""
    if options.trace is None:
        return TraceInput()
    if is_history(options.trace):
        return read_history(options.trace, otherwise=policies[0].policy)
    with opened(options.trace) as file:
        found = read_trace(file, name=str(options.trace), needs_times=options.load is None)
    return TraceInput(found.rows, left_out=found.left_out)


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a file of text. Raises TraceError where it cannot be read."""
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise TraceError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; cut it first")
        with path.open(encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not text in UTF-8") from error
