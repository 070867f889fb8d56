"""From a Kubernetes pod with Fairgate's scheduling gate to the pod that waits in line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from webhook.core.admission.queueing import as_requested
from webhook.core.model import decision_annotation
from webhook.core.model.decision import Queue
from webhook.core.model.demand import Weights
from webhook.core.model.gang import MAX_MEMBERS
from webhook.core.model.names import Namespace, TeamName
from webhook.core.model.original_request import without_holds
from webhook.core.model.pod import Pod
from webhook.core.model.text import shortened
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.owners import controller_of
from webhook.kube.pod.pods import InvalidPod, has_ended, is_queued, to_pod, uid_of, unix_seconds
from webhook.kube.pod.waiting_reason import MAX_TEXT, read_waits, waiting_text

_DIGITS: Final = len(str(MAX_MEMBERS))

_MAX_PARTS: Final = 4096
"""Bytes of what a release changes of a pod that are kept while it waits: a larger pod is read again."""


@dataclass(frozen=True, slots=True)
class WatchedPod(WaitingPod):
    """A pod that waits in line, with what its release changes of the object, and its controller.

    `parts` are Fairgate's labels and annotations, scheduling gates, selectors, affinity and tolerations at `version`;
    None if they are large.
    """

    parts: objects.Pod | None = field(default=None, compare=False)
    controller: ObjectRef | None = field(default=None, compare=False)


def to_waiting(pod: objects.Pod, weights: Weights, *, is_trusted: bool = False) -> WatchedPod | None:
    """Translate a pod that waits in line; None for any other, and for one that Fairgate did not let into the line.

    `weights` as in to_pod. A pod that its owner made unreadable while it waited keeps its place, without a turn. With
    `is_trusted` a pod needs no decision: its user is not known then.
    """
    metadata, spec = pod.metadata, pod.spec
    if not is_queued(spec) or spec.node_name or has_ended(pod):
        return None
    annotations = metadata.annotations or {}
    team = (metadata.labels or {}).get(keys.TEAM)
    text = annotations.get(keys.DECISION, "")
    decision = decision_annotation.read(text) if len(text) <= bounds.DECISION_BYTES else None
    if team is None or (decision is None and not is_trusted):
        return None
    read, problem = _read(pod, weights)
    kept = without_holds(read.constraints)
    return WatchedPod(
        pod=as_requested(read._replace(constraints=kept), read.tier_label if decision is None else decision.asked),
        team=TeamName(team),
        user=None if decision is None else decision.user,
        priority=spec.priority or 0,
        created=unix_seconds(metadata.creation_timestamp or ""),
        version=metadata.resource_version,
        text=waiting_text(annotations),
        reason=None if (waits := read_waits(annotations)) is None else waits.reason,
        is_terminating=metadata.deletion_timestamp is not None,
        problem=problem,
        keeps_room=keys.RECLAIMING in annotations,
        gang_whole=_gang_whole(annotations.get(keys.GANG_WHOLE, "")),
        holds=read.constraints.holds,
        parts=_parts(pod),
        controller=_controller(metadata),
    )


def _controller(metadata: objects.ObjectMeta) -> ObjectRef | None:
    """Return the controller of a pod; the pods of one controller share one reference."""
    found = controller_of(metadata, namespace=metadata.namespace)
    return None if found is None else _shared(found)


@lru_cache(maxsize=4096)
def _shared(controller: ObjectRef) -> ObjectRef:
    return controller


def new_in_line(pod: Pod, queue: Queue, found: objects.Pod, *, now: int) -> WaitingPod:
    """Return a pod that was let into the line now; `found` is the object."""
    annotations = found.metadata.annotations or {}
    return WaitingPod(
        as_requested(pod, None if queue.requested_tier is None else str(queue.requested_tier)),
        queue.team,
        queue.user,
        priority=found.spec.priority or 0,
        created=now,
        text=waiting_text(annotations),
        reason=None if (waits := read_waits(annotations)) is None else waits.reason,
    )


def _gang_whole(text: str) -> int:
    """Return the number of pods with which a gang is whole; 0 where its owner wrote something else."""
    return min(int(text), MAX_MEMBERS) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


def _parts(pod: objects.Pod) -> objects.Pod | None:
    """Return what a release changes of a pod; the raw parts of the watch's line are copied."""
    spec, metadata = pod.spec, pod.metadata
    raw = (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
    selector, affinity, tolerations, spread = map(bytes, raw)
    labels = _among(metadata.labels or {}, (keys.TEAM, keys.TIER))
    annotations = _among(metadata.annotations or {}, (keys.DECISION, *keys.LINE_ANNOTATIONS))
    texts = (*labels.values(), *annotations.values(), *(gate.name for gate in spec.scheduling_gates or ()))
    if sum(map(len, (selector, affinity, tolerations, spread, *texts))) > _MAX_PARTS:
        return None
    kept = objects.ObjectMeta(
        uid=metadata.uid, resource_version=metadata.resource_version, labels=labels, annotations=annotations
    )
    return objects.Pod(
        kept,
        objects.PodSpec(
            [],
            node_selector=msgspec.Raw(selector),
            affinity=msgspec.Raw(affinity),
            tolerations=msgspec.Raw(tolerations),
            topology_spread_constraints=msgspec.Raw(spread),
            scheduling_gates=spec.scheduling_gates,
        ),
    )


def _among(values: Mapping[str, str], listed: tuple[str, ...]) -> dict[str, str]:
    return {key: values[key] for key in listed if key in values}


def _read(pod: objects.Pod, weights: Weights) -> tuple[Pod, str]:
    """Return a pod, and why it cannot be read completely, "" if it can."""
    metadata = pod.metadata
    namespace = Namespace(metadata.namespace or "default")
    uid = uid_of(metadata, namespace)
    read = to_pod(pod, namespace=namespace, weights=weights, uid=uid)
    if not isinstance(read, InvalidPod):
        return read, ""
    bare = objects.Pod(_named(metadata), objects.PodSpec([]), pod.status)
    found = to_pod(bare, namespace=namespace, weights=weights, uid=uid)
    if isinstance(found, InvalidPod):
        raise AssertionError("a pod with nothing but a name is readable")  # noqa: TRY004 - a bug
    return found, shortened("; ".join(reason.text for reason in read.reasons), MAX_TEXT)


def _named(metadata: objects.ObjectMeta) -> objects.ObjectMeta:
    return msgspec.structs.replace(metadata, labels=None, annotations=None, owner_references=None)
