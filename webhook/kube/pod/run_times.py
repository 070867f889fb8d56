"""From pods as Kubernetes writes them to how long they ran, or run so far: for estimates, never for decisions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.core.explain.likely_start import Run
from webhook.core.model.amount import Units, exact_units, parse_amount
from webhook.core.model.decision import Charge
from webhook.core.model.decision_annotation import DecisionAnnotation, read
from webhook.core.model.names import TeamName, Uid
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.pod.pods import fallback_uid, unix_seconds
from webhook.kube.pod.stated_run_time import stated_run_time


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    finished_at: str | None = None


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, frozen=True):
    state: _State | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str | None = None
    start_time: str | None = None
    container_statuses: list[_Container] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    active_deadline_seconds: int | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def to_run(pod: Mapping[str, Any]) -> Run | None:
    """Return since when a pod of a team runs, or from when to when it ran; None where that is not known.

    A pod that failed says little about how long its work takes: it is left out. One on a node of which no status says
    when it started is taken to run since it was created.
    """
    try:
        found = msgspec.convert(pod, _Pod)
    except (msgspec.ValidationError, RecursionError):
        return None
    metadata, status = found.metadata, found.status
    team, created = (metadata.labels or {}).get(keys.TEAM), unix_seconds(metadata.creation_timestamp or "")
    is_running = status.phase == "Running" or (not status.phase and bool(found.spec.node_name))
    started = unix_seconds(status.start_time or "") or (created if is_running else 0)
    if not team or not started:
        return None
    ended = _ended(status)
    if not is_running and not (status.phase == "Succeeded" and ended >= started):
        return None
    decision = _decision(metadata)
    return Run(
        metadata.uid or fallback_uid(metadata.namespace or "default", metadata.name),
        TeamName(team),
        started,
        0 if is_running else ended,
        _gpus(decision),
        None if decision is None else decision.user,
        stated_run_time(metadata.annotations or {}, found.spec.active_deadline_seconds),
        created,
    )


def run_of(pod: objects.Pod, uid: Uid, charge: Charge) -> Run | None:
    """Return since when a charged pod runs, as the server decodes it; None where it does not run."""
    metadata, status = pod.metadata, pod.status
    if status is None or status.phase != "Running" or not (started := unix_seconds(status.start_time or "")):
        return None
    said = stated_run_time(metadata.annotations or {}, pod.spec.active_deadline_seconds)
    created = unix_seconds(metadata.creation_timestamp or "")
    return Run(uid, charge.team, started, 0, exact_units(charge.gpus), charge.user, said, created)


def _decision(metadata: objects.ObjectMeta) -> DecisionAnnotation | None:
    text = (metadata.annotations or {}).get(keys.DECISION, "")
    return read(text) if len(text) <= bounds.DECISION_BYTES else None


def _gpus(decision: DecisionAnnotation | None) -> Units:
    """Return what a pod was charged; 0 where that is not known."""
    try:
        return 0 if decision is None else parse_amount(decision.gpus)
    except ValueError:
        return 0


def _ended(status: _Status) -> int:
    """Return when the last container ended; 0 where that is not known."""
    states = [each.state for each in status.container_statuses or () if each.state is not None]
    ends = (state.terminated.finished_at for state in states if state.terminated is not None)
    return max((unix_seconds(end or "") for end in ends), default=0)
