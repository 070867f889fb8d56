"""Copies of pods: a pod that is created with another pod's decision loses what that decision wrote.

A restore from a backup, and a template made from a saved pod, keep the annotation and the names of nodes, which say
nothing of where the copy may run; `kubectl debug --copy-to` keeps the names alone. The user's own constraints stay, as
far as the decision says which those were. A forged decision gains nothing: its pod is judged as one without.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model import decision
from webhook.core.model.constraints import HELD, NODE_NAME_FIELD, Operator, Requirement, Toleration
from webhook.core.model.decision import DecisionAnnotation
from webhook.core.model.policy import Pool
from webhook.kube.admission.affinity import chosen_in, without_choice
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.keys import Operation, escape, put, remove
from webhook.kube.pod.constraints import read_placement, read_tolerations
from webhook.kube.pod.pods import unix_seconds

SAME_REQUEST_SECONDS: Final = 5
"""Within this time the API server calls the webhook again for one request. A later call decides again, with other nodes
at most; a copy of the same name within it keeps them."""

_WRITTEN: Final = (keys.DECISION, keys.EVICT_AT, keys.EVICT_FOR, keys.IDLE_SINCE, *keys.LINE_ANNOTATIONS)
_DECISION: Final = keys.DECISION
_NODE_NAME: Final = NODE_NAME_FIELD.encode()
_encoder: Final = msgspec.json.Encoder()
_list_decoder: Final = msgspec.json.Decoder(list[dict[str, Any]])
_selector_decoder: Final = msgspec.json.Decoder(dict[str, str])
_NO_KEYS: Final[Mapping[str, str]] = {}


class AsCreated(NamedTuple):
    """A pod without what the decision on another one wrote, and the operations that take it off."""

    pod: objects.Pod
    operations: list[Operation]


def subject_of(metadata: objects.ObjectMeta) -> str:
    """Return what a pod is called in both calls for one request: it may get its name only after them."""
    return f"{metadata.namespace}/{metadata.name or metadata.generate_name}"


def without_copied_decision(pod: objects.Pod, pools: Sequence[Pool], *, now_text: str = "") -> AsCreated:
    """Return a pod that is created as its user wrote it, if the decision on it is that on another pod.

    The decision is its own where an earlier call for the same request wrote it; without a time it never is. `pools`
    are those of the policy. Raises ValueError if a part is malformed, which to_pod reports.
    """
    text = (pod.metadata.annotations or _NO_KEYS).get(keys.DECISION)
    made: list[Operation] = []
    if text is None:
        return AsCreated(msgspec.structs.replace(pod, spec=_without_list(pod.spec, made)), made)
    if len(text) > bounds.DECISION_BYTES:
        return AsCreated(pod, made)
    found = decision.read(text)
    if found is not None and now_text and decision.subject_of(text) == subject_of(pod.metadata):
        age = unix_seconds(now_text) - unix_seconds(found.at)
        if abs(age) <= SAME_REQUEST_SECONDS:
            return AsCreated(pod, made)
    metadata = _as_written(pod.metadata, None if found is None else found.asked, made)
    spec = _without_gate(pod.spec, made)
    if found is not None:
        spec = _without_selector(spec, found, pools, made)
        affinity = without_choice(bytes(spec.affinity), _nodes_of(spec, found), _requirements(spec, found, pools))
        if affinity is not None:
            made += affinity.operations
            spec = msgspec.structs.replace(spec, affinity=affinity.left)
    spec = _without_tolerations(spec, _tolerations(found, pools), made)
    return AsCreated(msgspec.structs.replace(pod, metadata=metadata, spec=spec), made)


def may_be_copied(pod: objects.Pod) -> bool:
    """Whether a pod has a decision, or names of nodes."""
    annotations = pod.metadata.annotations
    return (annotations is not None and _DECISION in annotations) or _NODE_NAME in bytes(pod.spec.affinity)


def _without_list(spec: objects.PodSpec, made: list[Operation]) -> objects.PodSpec:
    """Return a spec without a list of nodes in the form in which decisions write it."""
    affinity = without_choice(bytes(spec.affinity), chosen_in(bytes(spec.affinity)), ())
    if affinity is None:
        return spec
    made += affinity.operations
    return msgspec.structs.replace(spec, affinity=affinity.left)


def _written_of(found: DecisionAnnotation, pools: Sequence[Pool]) -> Sequence[Pool]:
    """Return the pools whose conditions a decision may have written: where it names none, any of them."""
    return [pool for pool in pools if found.pool in (None, pool.name)]


def _tolerations(found: DecisionAnnotation | None, pools: Sequence[Pool]) -> Collection[Toleration]:
    if found is None or found.own.has_tolerations:
        return ()
    return [each for pool in _written_of(found, pools) for each in pool.tolerations]


def _requirements(spec: objects.PodSpec, found: DecisionAnnotation, pools: Sequence[Pool]) -> Sequence[Requirement]:
    """Return the conditions of pools, of the charged GPU model and of the gang's domain that a decision wrote."""
    if found.own.has_affinity:
        return ()
    named = [each for pool in _written_of(found, pools) for each in pool.affinity]
    if found.pool is None:
        named += [Requirement(key, Operator.IN, (value,)) for pool in pools for key, value in pool.node_selector]
    for value in filter(None, (found.model, found.domain)):
        named += [Requirement(key, Operator.IN, (value,)) for key in _keys_with(spec, value)]
    return named


def _keys_with(spec: objects.PodSpec, value: str) -> Collection[str]:
    """Return the labels that the affinity of a pod requires to have one value."""
    terms = read_placement(spec).constraints.terms or ()
    return {
        each.key for term in terms for each in term.labels if (each.operator, each.values) == (Operator.IN, (value,))
    }


def _nodes_of(spec: objects.PodSpec, found: DecisionAnnotation) -> Collection[str]:
    """Return the nodes that a decision wrote: those that the affinity names, if it has as many as were chosen."""
    if not found.listed:
        return found.nodes
    named = read_placement(spec).constraints.named_nodes
    return named if len(named) == found.listed else ()


def _as_written(metadata: objects.ObjectMeta, asked: str | None, made: list[Operation]) -> objects.ObjectMeta:
    labels, annotations = dict(metadata.labels or _NO_KEYS), dict(metadata.annotations or _NO_KEYS)
    made += [remove(f"/metadata/annotations/{escape(name)}") for name in _WRITTEN if name in annotations]
    annotations = {key: value for key, value in annotations.items() if key not in _WRITTEN}
    if labels.pop(keys.TEAM, None) is not None:
        made.append(remove(f"/metadata/labels/{escape(keys.TEAM)}"))
    if keys.TIER in labels and labels[keys.TIER] != asked:
        path = f"/metadata/labels/{escape(keys.TIER)}"
        made.append(remove(path) if asked is None else put(path, asked, exists=True))
        labels = {key: value for key, value in labels.items() if key != keys.TIER}
        labels |= {} if asked is None else {keys.TIER: asked}
    present = None if metadata.labels is None else labels  # an absent object has to be created before a label is added
    return msgspec.structs.replace(metadata, labels=present, annotations=annotations)


def _without_gate(spec: objects.PodSpec, made: list[Operation]) -> objects.PodSpec:
    if not spec.scheduling_gates:
        return spec
    gates = spec.scheduling_gates
    places = [place for place, gate in enumerate(gates) if gate.name == keys.QUEUE_GATE]
    made += [remove(f"/spec/schedulingGates/{place}") for place in reversed(places)]
    left = [gate for gate in gates if gate.name != keys.QUEUE_GATE]
    return msgspec.structs.replace(spec, scheduling_gates=left)


def _without_selector(
    spec: objects.PodSpec, found: DecisionAnnotation, pools: Sequence[Pool], made: list[Operation]
) -> objects.PodSpec:
    present = objects.read_part(_selector_decoder, bytes(spec.node_selector), where="spec.nodeSelector")
    named = [pool for pool in pools if pool.name == found.pool]
    if not present or found.own.has_selector:
        return spec
    written = {key for pool in named for key, value in pool.node_selector if present.get(key) == value}
    made += [remove(f"/spec/nodeSelector/{escape(key)}") for key in sorted(written)]
    left = {key: value for key, value in present.items() if key not in written}
    return msgspec.structs.replace(spec, node_selector=msgspec.Raw(_encoder.encode(left)))


def _without_tolerations(
    spec: objects.PodSpec, written: Collection[Toleration], made: list[Operation]
) -> objects.PodSpec:
    """Return a spec without some tolerations, and without those of held nodes, which no user may write."""
    present = objects.read_part(_list_decoder, bytes(spec.tolerations), where="spec.tolerations")
    if not present:
        return spec
    gone = [
        place
        for place, each in enumerate(present)
        if each.get("key") == HELD or not {*read_tolerations(_encoder.encode([each]))}.isdisjoint(written)
    ]
    made += [remove(f"/spec/tolerations/{place}") for place in reversed(gone)]
    left = [each for place, each in enumerate(present) if place not in gone]
    return msgspec.structs.replace(spec, tolerations=msgspec.Raw(_encoder.encode(left)))
