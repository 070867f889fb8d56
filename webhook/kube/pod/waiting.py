"""A queued pod, its reason, its release.

Lets pods go without a decision: what `fairgate uninstall` finds on pods, and the patch that removes it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.admission.queueing import as_requested
from webhook.core.model import decision as decision_annotation
from webhook.core.model.amounts import Namespace, TeamName, Uid, printable, shortened
from webhook.core.model.constraints import MAX_MEMBERS
from webhook.core.model.decision import Queue, without_holds
from webhook.core.model.demand import Weights
from webhook.core.model.pod import Pod
from webhook.core.model.reasons import Code, Reason, cause_of, read_statement, statement_json, waits_for
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.objects import controller_of
from webhook.kube.pod.pods import InvalidPod, has_ended, is_queued, to_pod, uid_of, unix_seconds

_MARKS: Final = (keys.EVICT_AT, keys.EVICT_FOR, keys.IDLE_SINCE)


class MarkedPod(NamedTuple):
    """A pod that waits in the queue, whose eviction is announced, or that is marked as not using its GPUs."""

    namespace: Namespace
    name: str
    uid: Uid
    created: str

    @property
    def text(self) -> str:
        """Kind, namespace and name."""
        return f"Pod {self.namespace}/{self.name}"


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: objects.ObjectMeta
    spec: objects.PodGates = objects.PodGates()


_gated_decoder: Final = msgspec.json.Decoder(_Pod)


def in_line(raw: bytes) -> MarkedPod | None:
    """Return a pod that has Fairgate's gate; None for another one. Raises ValueError if it is no pod."""
    pod = _gated_decoder.decode(raw)
    return _marked(pod) if is_queued(pod.spec) else None


def with_notice(raw: bytes) -> MarkedPod | None:
    """Return a pod that the evictor wrote a notice or a mark on; None for another one.

    Raises ValueError if it is no pod.
    """
    pod = _gated_decoder.decode(raw)
    return _marked(pod) if any(key in (pod.metadata.annotations or {}) for key in _MARKS) else None


def unmark_patch(pod: MarkedPod) -> bytes:
    """Return a merge patch that removes what the evictor wrote on a pod."""
    return msgspec.json.encode({"metadata": {"uid": pod.uid, "annotations": dict.fromkeys(_MARKS)}})


def by_turns(pods: Iterable[MarkedPod]) -> list[MarkedPod]:
    """Return pods in the order in which they are let go: the oldest of each namespace, then the next of each.

    So a namespace with any number of pods delays no other.
    """
    taken: Counter[Namespace] = Counter()
    turns: dict[MarkedPod, int] = {}
    oldest_first = sorted(pods, key=lambda each: (each.created, each.text))
    for pod in oldest_first:
        taken[pod.namespace] += 1
        turns[pod] = taken[pod.namespace]
    return sorted(oldest_first, key=turns.__getitem__)


def let_go_patch(pod: MarkedPod) -> bytes:
    """Return a strategic merge patch that removes the gate, and what Fairgate wrote about the wait.

    It changes only the pod with this UID. Other gates stay.
    """
    metadata = {"uid": pod.uid, "annotations": dict.fromkeys(keys.LINE_ANNOTATIONS)}
    gate = {"$patch": "delete", "name": keys.QUEUE_GATE}
    return msgspec.json.encode({"metadata": metadata, "spec": {"schedulingGates": [gate]}})


def _marked(pod: _Pod) -> MarkedPod:
    metadata = pod.metadata
    return MarkedPod(metadata.namespace, metadata.name, metadata.uid, metadata.creation_timestamp or "")


# Partial decoding of a pod that cannot be decoded completely, so that its GPUs are still counted.


UNREADABLE_AMOUNT: Final = 16
"""The number that an unreadable amount counts as: no node has more GPUs."""

_TEXTS: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")

_Json = dict[str, Any]


def recovered_pod(found: objects.Pod | bytes) -> objects.Pod | None:
    """Return a pod's identity, node and container resources; None if it has no UID.

    All other fields are dropped, and an unreadable amount counts as a large one.
    """
    if isinstance(found, objects.Pod):
        return _with_amounts(found)
    whole = _json(found)
    metadata, spec = _mapping(whole.get("metadata")), _mapping(whole.get("spec"))
    made = {
        "metadata": {
            **{key: metadata[key] for key in _TEXTS if isinstance(metadata.get(key), str)},
            **{key: _texts(metadata.get(key)) for key in ("labels", "annotations")},
        },
        "spec": {
            **{part: _containers(spec.get(part)) for part in ("containers", "initContainers")},
            "nodeName": spec["nodeName"] if isinstance(spec.get("nodeName"), str) else "",
        },
        "status": {key: str(_mapping(whole.get("status")).get(key) or "") for key in ("phase", "startTime")},
    }
    return msgspec.convert(made, objects.Pod) if "uid" in made["metadata"] else None


def _with_amounts(pod: objects.Pod) -> objects.Pod:
    """Return a pod with readable container resources, and without other fields that add to its demand."""
    spec = objects.PodSpec(
        [_readable(each) for each in pod.spec.containers],
        [_readable(each) for each in pod.spec.init_containers or ()],
        node_name=pod.spec.node_name,
        resource_claims=pod.spec.resource_claims,
        termination_grace_period_seconds=pod.spec.termination_grace_period_seconds,
    )
    status = pod.status
    kept = (
        None
        if status is None
        else objects.PodStatus(
            status.phase, start_time=status.start_time, resource_claim_statuses=status.resource_claim_statuses
        )
    )
    return objects.Pod(pod.metadata, spec, kept)


def _readable(container: objects.Container) -> objects.Container:
    resources = _raw(_json(bytes(container.resources)))
    return objects.Container(container.name, resources, restart_policy=container.restart_policy)


def _containers(listed: object) -> list[_Json]:
    containers = [_mapping(each) for each in listed] if isinstance(listed, list) else []
    return [
        {"name": str(each.get("name", "")), "resources": _raw(_mapping(each.get("resources")))} for each in containers
    ]


def _raw(resources: _Json) -> msgspec.Raw:
    read = {side: _amounts(_mapping(resources.get(side))) for side in ("limits", "requests")}
    return msgspec.Raw(msgspec.json.encode(read))


def _amounts(listed: _Json) -> _Json:
    return {name: value if _is_amount(name, value) else UNREADABLE_AMOUNT for name, value in listed.items()}


def _is_amount(name: str, value: object) -> bool:
    try:
        return isinstance(value, str | int | float) and bounds.amount(name, value) >= 0
    except ValueError:
        return False


def _json(raw: bytes) -> _Json:
    try:
        return _mapping(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}


def _texts(found: object) -> dict[str, str]:
    return {key: value for key, value in _mapping(found).items() if isinstance(value, str)}


def _mapping(value: object) -> _Json:
    return value if isinstance(value, dict) else {}


# Why a pod waits, as Fairgate writes it on the pod: a text for people, and its facts for programs.
#
# Anyone who may change the pod may write there: what is read back is bounded, and is None where it is not as written.


MAX_TEXT: Final = 1000
"""Characters of the text that says why a pod waits."""

MAX_FACTS: Final = 2000
"""Characters of its facts. More are not written."""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    cause: dict[str, object]
    place: int = 0


class Waits(NamedTuple):
    """Why a pod waits, and its place in the queue when that was written, 0 where none was."""

    reason: Reason
    place: int = 0


def waits_of(reason: Reason) -> Waits:
    """Return why a pod waits by the reason of the decision that let it into the queue."""
    place = reason.facts.get("place", 0)
    return Waits(Reason(reason.code, *cause_of(reason)), place if isinstance(place, int) else 0)


_written_decoder: Final = msgspec.json.Decoder(_Written)


def waiting_annotations(waits: Waits) -> dict[str, str | None]:
    """Return the annotations that say why a pod waits; None for one that is not to be there."""
    reason, place = waits
    cause = reason.statement
    facts = msgspec.json.encode(_Written(reason.code, statement_json(cause), place)).decode()
    text = shortened(waits_for(reason.code, cause, place=place).text, MAX_TEXT)
    return {keys.WAITING: text, keys.WAITING_FACTS: facts if len(facts) <= MAX_FACTS else None}


def read_waits(annotations: Mapping[str, str]) -> Waits | None:
    """Return why a pod waits, by its facts."""
    written = annotations.get(keys.WAITING_FACTS, "")
    if not 0 < len(written) <= MAX_FACTS:
        return None
    try:
        found = _written_decoder.decode(written)
        code = Code(found.code)
    except ValueError:  # of msgspec, too
        return None
    cause = read_statement(found.cause)
    return None if cause is None or found.place < 0 else Waits(Reason(code, *cause), found.place)


def waiting_text(annotations: Mapping[str, str]) -> str:
    """Return why a pod waits, as text."""
    return printable(annotations.get(keys.WAITING, "")[:MAX_TEXT])


# From a Kubernetes pod with Fairgate's scheduling gate to the pod that waits in the queue.


_DIGITS: Final = len(str(MAX_MEMBERS))

_MAX_PARTS: Final = 4096
"""Bytes of what a release changes of a pod that are kept while it waits: a larger pod is read again."""


@dataclass(frozen=True, slots=True)
class WatchedPod(WaitingPod):
    """A pod that waits in the queue, with what its release changes of the object, and its controller.

    `parts` are Fairgate's labels and annotations, scheduling gates, selectors, affinity and tolerations at `version`;
    None if they are large.
    """

    parts: objects.Pod | None = field(default=None, compare=False)
    controller: ObjectRef | None = field(default=None, compare=False)


def to_waiting(pod: objects.Pod, weights: Weights, *, is_trusted: bool = False) -> WatchedPod | None:
    """Translate a pod that is queued; None for any other, and for one that Fairgate did not let into the queue.

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
    """Return a pod that was let into the queue now; `found` is the object."""
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
