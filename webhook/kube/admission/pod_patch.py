"""JSON Patch operations that apply a decision to a pod.

User fields are never removed or overridden; only Fairgate's own labels and annotations are replaced or removed.
Applying the same decision to a pod again gives no operations.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import jsonpatch
import msgspec
from msgspec.structs import replace

from webhook.core.admission.queueing import QUEUE_MODE
from webhook.core.model.amounts import NodeName, PoolName, ResourceName, TeamName, Uid, format_gpus
from webhook.core.model.constraints import DomainPlace, Tier, Toleration
from webhook.core.model.decision import Admit, Charge, NodeChoice, Own, Queue, read
from webhook.core.model.pod import PriorityTriple
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code
from webhook.kube.admission.affinity import affinity_operations, has_conditions, lists_nodes, narrowing_operations
from webhook.kube.admission.copied_pod import subject_of
from webhook.kube.objects import keys, objects
from webhook.kube.objects.keys import DECISION_PATH, TEAM_PATH, TIER_PATH, Operation, add, escape, put, remove, test
from webhook.kube.pod.constraints import read_placement, read_tolerations
from webhook.kube.pod.pods import is_queued
from webhook.kube.pod.waiting import waiting_annotations, waits_of


class _Decision(msgspec.Struct, gc=False, omit_defaults=True):
    """The decision annotation without its time. The core decodes it; this struct is for encoding speed."""

    demand: Mapping[str, str]
    gpus: str
    mode: str
    nodes: Sequence[str]
    code: str
    policy: str
    listed: int = 0  # nodes that the node affinity names: they are not repeated
    pool: str | None = None
    model: str | None = None
    user: str | None = None
    asked: str | None = None
    claims: Sequence[str] = ()
    domain: str | None = None
    why: str | None = None  # this domain


_HELD: Final = ',"held":'
"""Begins what a charge that was taken back adds to a decision: the resourceVersion at which the pod was read then."""

_LATER: Final = frozenset(keys.WRITTEN_LATER)
_encoder: Final = msgspec.json.Encoder()
_NONE_OWN: Final = Own()
_selector_decoder: Final = msgspec.json.Decoder(dict[str, str])


def operations(pod: objects.Pod, admit: Admit, *, now_text: str) -> list[Operation]:
    """Return the operations that apply a decision to a pod.

    Values may contain pre-encoded JSON (msgspec.Raw), which encode_response and `apply` handle. Raises ValueError if
    the pod's affinity or nodeSelector is malformed, which to_pod reports earlier.
    """
    found: list[Operation] = []
    _write_labels(found, pod.metadata, admit)
    _write_decision(found, pod, admit, now_text)
    _write_node_choice(found, pod.spec, admit.node_choice)
    if pod.spec.scheduling_gates:
        found += ungate_operations(pod.spec)
    if pod.metadata.annotations and not _LATER.isdisjoint(pod.metadata.annotations):
        found += _removals(pod.metadata.annotations, keys.WRITTEN_LATER)
    if admit.priority is not None:
        _write_priority(found, pod.spec, admit.priority)
    return found


def queue_operations(pod: objects.Pod, queue: Queue, *, now_text: str) -> list[Operation]:
    """Return the operations that let a pod wait in the queue: the gate, its team, the decision, and why it waits."""
    found: list[Operation] = []
    gates = pod.spec.scheduling_gates
    if not is_queued(pod.spec):
        gate = {"name": keys.QUEUE_GATE}
        found.append(add("/spec/schedulingGates/-", gate) if gates else add("/spec/schedulingGates", [gate]))
    labels = pod.metadata.labels
    if labels is None:
        found.append(add("/metadata/labels", {keys.TEAM: str(queue.team)}))
    else:
        if labels.get(keys.TEAM) != queue.team:
            found.append(put(TEAM_PATH, str(queue.team), exists=keys.TEAM in labels))
        if queue.requested_tier is None and keys.TIER in labels:  # an earlier decision in the same request wrote it
            found.append(remove(TIER_PATH))
    decision = _Decision(
        demand=_amounts(queue.demand.devices),
        gpus=format_gpus(queue.demand.gpus),
        mode=QUEUE_MODE,
        nodes=(),
        code=queue.reason.code,
        policy=queue.policy_hash,
        user=queue.user,
        asked=queue.requested_tier,
        claims=queue.demand.claims,
    )
    written = {keys.DECISION: _dated(_encoder.encode(decision)[:-1].decode(), pod.metadata, _NONE_OWN, now_text)}
    written |= {key: text for key, text in waiting_annotations(waits_of(queue.reason)).items() if text is not None}
    present = pod.metadata.annotations
    if present is None:
        found.append(add("/metadata/annotations", written))
    else:
        found += [put(f"/metadata/annotations/{escape(k)}", v, exists=k in present) for k, v in written.items()]
        found += _removals(present, (key for key in keys.WRITTEN_LATER if key not in written))
    return found


def release_operations(pod: objects.Pod, admit: Admit, *, now_text: str) -> list[Operation]:
    """Return the operations that start a pod which waited in the queue; they fail where what was judged changed since.

    Of what a tenant may change that is where the pod may run, and its deletion; its decision is changed by what takes
    its charge back. Nothing else may keep it from starting, such as an annotation that is written all the time.

    kube-apiserver lets a gated pod's required node affinity only be narrowed: no term may be added to the user's own.
    So those get the first node alone, or the first of several pools. A pod's priority cannot change after its creation.
    """
    metadata, spec, choice = pod.metadata, pod.spec, admit.node_choice
    annotations = metadata.annotations or {}
    found = [
        test("/metadata/uid", metadata.uid),
        test("/metadata/deletionTimestamp", metadata.deletion_timestamp),
        test("/spec/nodeSelector", _value(spec.node_selector)),
        test("/spec/affinity", _value(spec.affinity)),
        *gate_tests(spec),
    ]
    if annotations:
        found.append(test(DECISION_PATH, annotations.get(keys.DECISION)))
        found += _written(dict.fromkeys(keys.LINE_ANNOTATIONS))
        kept = {key: value for key, value in annotations.items() if key not in keys.LINE_ANNOTATIONS}
        pod = replace(pod, metadata=replace(metadata, annotations=kept))
    if read_placement(spec).constraints.terms is None:
        return found + operations(pod, admit._replace(priority=None), now_text=now_text)
    _write_labels(found, metadata, admit)
    first = admit._replace(node_choice=choice._replace(nodes=choice.nodes[:1]))
    _write_decision_text(found, pod, first, _encoded_decision(first, is_listed=False), now_text)
    _write_node_choice(found, spec, choice._replace(pool_terms=(), nodes=()))
    return [*found, *narrowing_operations(bytes(spec.affinity), choice), *ungate_operations(spec)]


def line_operations(
    pod: objects.Pod, annotations: Mapping[str, str | None], *, is_held: bool = False
) -> list[Operation]:
    """Return the operations that write annotations on a queued pod (None: removed); they fail once it has started.

    With `is_held` they change its decision, too, so that no release that was judged before can follow.
    """
    metadata = pod.metadata
    found = [test("/metadata/uid", metadata.uid), *gate_tests(pod.spec)]
    decision = (metadata.annotations or {}).get(keys.DECISION)
    if is_held and decision is not None:
        held = f'{decision.partition(_HELD)[0].removesuffix("}")}{_HELD}"{metadata.resource_version}"}}'
        found += [test(DECISION_PATH, decision), add(DECISION_PATH, held)]
    return found + _written(annotations)


def _written(annotations: Mapping[str, str | None]) -> list[Operation]:
    """Return operations that write annotations, or remove (None) them whether they are there or not."""
    found = []
    for key, text in annotations.items():
        path = f"/metadata/annotations/{escape(key)}"
        found += [add(path, text or ""), *([remove(path)] if text is None else [])]
    return found


def gate_tests(spec: objects.PodSpec) -> list[Operation]:
    """Return the tests that Fairgate's gates are where they were read."""
    return [test(f"/spec/schedulingGates/{index}/name", keys.QUEUE_GATE) for index in _places_of_gate(spec)]


def ungate_operations(spec: objects.PodSpec) -> list[Operation]:
    """Return the operations that remove Fairgate's scheduling gate, and leave those of other controllers."""
    return [remove(f"/spec/schedulingGates/{index}") for index in reversed(_places_of_gate(spec))]


def _places_of_gate(spec: objects.PodSpec) -> list[int]:
    return [index for index, gate in enumerate(spec.scheduling_gates or ()) if gate.name == keys.QUEUE_GATE]


def _value(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(raw) in objects.ABSENT else raw


def _removals(annotations: Mapping[str, str], removed: Iterable[str]) -> list[Operation]:
    return [remove(f"/metadata/annotations/{escape(key)}") for key in removed if key in annotations]


def node_choice_operations(pod: objects.Pod, node_choice: NodeChoice) -> list[Operation]:
    """Return only the operations for node selection. Raises as `operations` does."""
    found: list[Operation] = []
    _write_node_choice(found, pod.spec, node_choice)
    return found


def _write_node_choice(found: list[Operation], spec: objects.PodSpec, node_choice: NodeChoice) -> None:
    if node_choice.node_selector:
        _write_selector(found, spec, node_choice.node_selector)
    if node_choice.tolerations:
        _write_tolerations(found, spec, node_choice.tolerations)
    if node_choice.pool_terms or node_choice.nodes:
        found += affinity_operations(bytes(spec.affinity), node_choice)


def apply(pod: Mapping[str, Any], patch: Sequence[Operation]) -> dict[str, Any]:
    """Return the pod after the patch; the given pod is not changed."""
    patched: dict[str, Any] = jsonpatch.apply_patch(pod, msgspec.json.decode(_encoder.encode(patch)))
    return patched


def _write_labels(found: list[Operation], metadata: objects.ObjectMeta, admit: Admit) -> None:
    labels, charge = metadata.labels, admit.charge
    if labels is None:
        found.append(add("/metadata/labels", {keys.TEAM: str(charge.team), keys.TIER: str(charge.tier)}))
    else:
        team_now, tier_now = labels.get(keys.TEAM), labels.get(keys.TIER)
        has_team = None if team_now is None else team_now == charge.team
        has_tier = None if tier_now is None else tier_now == charge.tier
        found += _label_operations(charge.team, charge.tier, has_team, has_tier)


@lru_cache(maxsize=1024)  # most pods of a team have neither label and get the same two; operations are never modified
def _label_operations(
    team: TeamName, tier: Tier, has_team: bool | None, has_tier: bool | None
) -> tuple[Operation, ...]:
    """Return operations for the labels that are wrong (False) or absent (None)."""
    labels = ((TEAM_PATH, str(team), has_team), (TIER_PATH, str(tier), has_tier))
    return tuple(put(path, want, exists=is_set is not None) for path, want, is_set in labels if not is_set)


def _write_decision(found: list[Operation], pod: objects.Pod, admit: Admit, now_text: str) -> None:
    body = _encoded_decision(admit, is_listed=lists_nodes(bytes(pod.spec.affinity), admit.node_choice))
    _write_decision_text(found, pod, admit, body, now_text)


def _write_decision_text(found: list[Operation], pod: objects.Pod, admit: Admit, body: str, now_text: str) -> None:
    metadata = pod.metadata
    annotations = metadata.annotations
    present = None if annotations is None else annotations.get(keys.DECISION)
    # what differs between equal decisions comes last, so that they are found by comparing the text before it
    if present is not None and present.rpartition(',"of":')[0] == body:
        return
    earlier = None if present is None else read(present)
    own = _own(pod.spec, admit.node_choice) if earlier is None else earlier.own
    text = _dated(body, metadata, own, now_text)
    if annotations is None:
        found.append(add("/metadata/annotations", {keys.DECISION: text}))
    else:
        found.append(put(DECISION_PATH, text, exists=present is not None))


def _own(spec: objects.PodSpec, choice: NodeChoice) -> Own:
    """Return which parts of its pool's conditions a pod has before they are written."""
    if not (choice.node_selector or choice.tolerations or choice.pool_terms):
        return _NONE_OWN
    selector, tolerations, affinity = bytes(spec.node_selector), bytes(spec.tolerations), bytes(spec.affinity)
    if selector in objects.ABSENT and tolerations in objects.ABSENT and affinity in objects.ABSENT:
        return _NONE_OWN
    present = objects.read_part(_selector_decoder, selector, where="spec.nodeSelector") or {}
    tolerated = () if tolerations in objects.ABSENT else read_tolerations(tolerations)
    return Own(
        any(key in present for key, _ in choice.node_selector),
        any(each in tolerated for each in choice.tolerations),
        bool(choice.pool_terms) and has_conditions(affinity, choice.pool_terms),
    )


def _encoded_decision(admit: Admit, *, is_listed: bool) -> str:
    demand, charge, choice = admit.demand, admit.charge, admit.node_choice
    encode = _cached_text if is_listed and not demand.claims else _text
    return encode(
        demand.devices,
        charge,
        choice.mode,
        () if is_listed else choice.nodes,
        len(choice.nodes) if is_listed else 0,
        admit.reason.code,
        admit.policy_hash,
        choice.pool,
        admit.requested_tier,
        demand.claims,
        choice.domain,
    )


def _text(  # noqa: PLR0917 - the key of a cache: with keywords a look-up takes twice as long
    devices: tuple[tuple[ResourceName, int], ...],
    charge: Charge,
    mode: Mode,
    nodes: tuple[NodeName, ...],
    listed: int,
    code: Code,
    policy: str,
    pool: PoolName | None,
    asked: Tier | None,
    claims: tuple[Uid, ...],
    domain: DomainPlace | None,
) -> str:
    """Return a decision without its time and the bracket at its end."""
    decision = _Decision(
        demand=_amounts(devices),
        gpus=format_gpus(charge.gpus),
        mode=mode,
        nodes=nodes,
        listed=listed,
        code=code,
        policy=policy,
        pool=pool,
        model=charge.model,
        user=charge.user,
        asked=asked,
        claims=claims,
        domain=None if domain is None else domain.name or None,
        why=None if domain is None else domain.why or None,
    )
    return _encoder.encode(decision)[:-1].decode()


_cached_text: Final = lru_cache(maxsize=1024)(_text)
"""The text is the same for all pods of a template and a user, unless it names nodes or claims. What a tenant may write
of it, the user, has 253 characters."""


@lru_cache(maxsize=1024)
def _amounts(devices: tuple[tuple[ResourceName, int], ...]) -> Mapping[str, str]:
    return {name: str(amount) for name, amount in devices}


def _dated(body: str, metadata: objects.ObjectMeta, own: Own, now_text: str) -> str:
    """Return a decision with the pod that it is for, what of its pool's conditions is the user's, and the time."""
    subject = _encoder.encode(subject_of(metadata)).decode()
    said = f',"own":"{own.text}"' if own is not _NONE_OWN and any(own) else ""
    return f'{body},"of":{subject}{said},"at":"{now_text}"}}'


def _write_selector(found: list[Operation], spec: objects.PodSpec, wanted: tuple[tuple[str, str], ...]) -> None:
    present = objects.read_part(_selector_decoder, bytes(spec.node_selector), where="spec.nodeSelector")
    if present is None:
        found.append(add("/spec/nodeSelector", dict(wanted)))
        return
    found += [add(f"/spec/nodeSelector/{escape(key)}", value) for key, value in wanted if key not in present]


def _write_tolerations(found: list[Operation], spec: objects.PodSpec, wanted: tuple[Toleration, ...]) -> None:
    raw = bytes(spec.tolerations)
    if raw in objects.ABSENT:
        found.append(add("/spec/tolerations", [_toleration(toleration) for toleration in wanted]))
        return
    present = read_tolerations(raw)
    found += [add("/spec/tolerations/-", _toleration(each)) for each in wanted if each not in present]


def _toleration(toleration: Toleration) -> dict[str, str]:
    written = {"operator": "Exists"} if toleration.exists else {"operator": "Equal", "value": toleration.value}
    if toleration.key:
        written["key"] = toleration.key
    if toleration.effect is not None:
        written["effect"] = str(toleration.effect)
    return written


def _write_priority(found: list[Operation], spec: objects.PodSpec, wanted: PriorityTriple) -> None:
    """Set the three fields together: kube-apiserver's priority plugin refuses a class with another class's value."""
    if spec.priority_class_name != wanted.name:
        found.append(put("/spec/priorityClassName", wanted.name, exists=bool(spec.priority_class_name)))
    if spec.priority != wanted.value:
        found.append(put("/spec/priority", wanted.value, exists=spec.priority is not None))
    if spec.preemption_policy != wanted.preemption_policy:
        found.append(put("/spec/preemptionPolicy", wanted.preemption_policy, exists=spec.preemption_policy is not None))
