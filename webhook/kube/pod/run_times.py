"""From pods as Kubernetes writes them to how long they ran, or run so far: for estimates, never for decisions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.core.explain.likely_start import Run
from webhook.core.model.amount import Units, parse_amount
from webhook.core.model.decision_annotation import DecisionAnnotation, read
from webhook.core.model.names import TeamName
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.pod.pods import fallback_uid, unix_seconds


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


class _Pod(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta
    status: _Status = _Status()


def to_run(pod: Mapping[str, Any]) -> Run | None:
    """Return since when a pod of a team runs, or from when to when it ran; None where that is not known.

    A pod that failed says little about how long its work takes: it is left out.
    """
    try:
        found = msgspec.convert(pod, _Pod)
    except (msgspec.ValidationError, RecursionError):
        return None
    metadata, status = found.metadata, found.status
    team, started = (metadata.labels or {}).get(keys.TEAM), unix_seconds(status.start_time or "")
    if not team or not started:
        return None
    ended = _ended(status)
    if status.phase != "Running" and not (status.phase == "Succeeded" and ended >= started):
        return None
    decision = _decision(metadata)
    return Run(
        metadata.uid or fallback_uid(metadata.namespace or "default", metadata.name),
        TeamName(team),
        started,
        0 if status.phase == "Running" else ended,
        _gpus(decision),
        None if decision is None else decision.user,
    )


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
