"""A history of `fairgate serve --history` as what a simulation begins with: its pods are a trace, its nodes a world."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.cli.replay.recorded import RecordedPod, policy_in_force, policy_of, recorded_pods, world_of
from webhook.cli.world_source import Objects
from webhook.core.model.policy import Policy
from webhook.history.reader import read_trace, recorded_range
from webhook.history.schema import HistoryError
from webhook.history.trace_row import Trace
from webhook.kube.workloads.scalers import KIND
from webhook.simulation.traces.row import MAX_SECONDS, Row, TraceError

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
    trace = read_trace(path, begin, end)
    world = world_of(trace, policy_in_force(trace, otherwise=otherwise))
    found = recorded_pods(trace, world, until=end)
    objects = tuple(each for each in _objects(trace) if each.get("kind") in _SURROUNDINGS)
    if not found.pods:
        raise TraceError(f"{path}: has no pod that can be decided again")
    rows = [_row(number, each, begin) for number, each in enumerate(found.pods, start=1)]
    return TraceInput(rows, objects, found.left_out)


def objects_of(path: Path) -> Objects:
    """Return the recorded nodes, namespaces, PriorityClasses and autoscalers. Raises HistoryError."""
    return _objects(read_trace(path, *recorded_range(path)))


def recorded_policy(path: Path) -> Policy:
    """Return the policy that was in force last. Raises HistoryError."""
    return policy_of(read_trace(path, *recorded_range(path)).policies, advice="give --policy DIR")


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
