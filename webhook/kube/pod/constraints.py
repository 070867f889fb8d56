"""A pod's placement constraints: from raw selectors, affinity and tolerations to core Constraints.

Pods of one template have identical bytes in these parts, so the parsed constraints are cached by those bytes. Those
of a decided pod name its nodes: the watch reads them again, and pods of one burst often have the same nodes.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from webhook.core.model.amounts import ResourceName
from webhook.core.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    Effect,
    NodeTerm,
    Operator,
    Requirement,
    Toleration,
)
from webhook.core.model.gpu_shares import PRODUCT, REPLICAS, replica_slices, slices_of
from webhook.core.model.topology import AffinityRule, TopologyRule, anti_affinity
from webhook.kube.objects import bounds, objects
from webhook.kube.pod.peer_rules import (
    NO_RULES,
    NO_TERMS,
    NOTHING,
    InterPod,
    Spreading,
    Terms,
    number_of_terms,
    read_spreading,
    read_terms,
    rules_for,
    rules_of,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod's own placement constraints.

    `is_open`: some constraints between pods can be evaluated only by kube-scheduler. `excess` lists exceeded limits;
    `undecided_excess` those that hold only for a pod without a decision, whose user wrote all of it. `slices` are as
    in core Pod.
    """

    constraints: Constraints = NO_CONSTRAINTS
    is_open: bool = False
    spreading: Spreading = NOTHING
    interpod: InterPod = NO_RULES
    problems: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()
    undecided_excess: tuple[str, ...] = ()
    slices: tuple[ResourceName, ...] = ()

    def topology(self, labels: Mapping[str, str]) -> tuple[TopologyRule, ...]:
        """Return the rules about other pods for a pod with these labels."""
        if not self.interpod.rules:
            return rules_for(self.spreading, labels) if self.spreading.rules else ()
        return (*rules_of(self.interpod, labels), *rules_for(self.spreading, labels))


class _Requirement(msgspec.Struct, frozen=True, gc=False):
    key: str
    operator: Operator
    values: tuple[str, ...] | None = None


class _Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_expressions: tuple[_Requirement, ...] | None = None
    match_fields: tuple[_Requirement, ...] | None = None


class _NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_selector_terms: tuple[_Term, ...] | None = None


class _NodeAffinity(msgspec.Struct, frozen=True, gc=False):
    required: _NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[msgspec.Raw] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: Terms | None = None
    pod_anti_affinity: Terms | None = None


class _AntiAffinityPart(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_anti_affinity: msgspec.Raw = objects.NOTHING


class _Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


_selector_decoder: Final = msgspec.json.Decoder(dict[str, str])
_affinity_decoder: Final = msgspec.json.Decoder(_Affinity)
_anti_affinity_part_decoder: Final = msgspec.json.Decoder(_AntiAffinityPart)
_anti_decoder: Final = msgspec.json.Decoder(Terms)
_node_selector_decoder: Final = msgspec.json.Decoder(_NodeSelector)
_tolerations_decoder: Final = msgspec.json.Decoder(list[_Toleration])

_OF_SLICES: Final = (b"-MIG-", REPLICAS.encode())
_EFFECTS: Final = {effect.value: effect for effect in Effect}
_BOUNDS: Final = {each.value: each for each in (Operator.GT, Operator.LT)}


def read_placement(spec: objects.PodSpec) -> Placement:
    """Return the placement constraints in a pod's spec."""
    selector, affinity = bytes(spec.node_selector), bytes(spec.affinity)
    tolerations, spread = bytes(spec.tolerations), bytes(spec.topology_spread_constraints)
    source = (selector, affinity, tolerations, spread)
    known = _PLACEMENTS.known.get(source)
    if known is not None:
        return known
    if excess := _too_long(selector, affinity, tolerations, spread):
        return Placement(excess=excess)
    read = _read(*source)
    _PLACEMENTS.keep(source, read, len(selector) + len(affinity) + len(tolerations) + len(spread))
    return read


def with_volumes(constraints: Constraints, spec: objects.PodSpec, namespace: str) -> Constraints:
    """Add the claims of a pod's volumes: the first of many, as kube-scheduler checks the others."""
    names = [each.persistent_volume_claim.claim_name for each in spec.volumes or () if each.persistent_volume_claim]
    if not names:
        return constraints
    claims = sorted({f"{namespace}/{name}" for name in names})
    return replace(constraints, volumes=tuple(claims[: bounds.VOLUME_CLAIMS]))


def node_terms(raw: bytes) -> tuple[NodeTerm, ...]:
    """Return the terms of a node selector, such as that of a volume. Raises ValueError if it is malformed."""
    known = _TERMS.known.get(raw)
    if known is None:
        found = objects.read_part(_node_selector_decoder, raw, where="nodeAffinity.required")
        known = _selector_terms(found) if found is not None else ()
        _TERMS.keep(raw, known, len(raw))
    return known


def read_slices(spec: objects.PodSpec) -> tuple[ResourceName, ...]:
    """Return the slices that a pod's `nvidia.com/gpu` must be (gpu_shares.py); few pods constrain this."""
    selector, affinity = bytes(spec.node_selector), bytes(spec.affinity)
    if any(words in part for part in (selector, affinity) for words in _OF_SLICES):
        return read_placement(spec).slices
    return ()


def read_tolerations(raw: bytes) -> tuple[Toleration, ...]:
    """Return tolerations from raw JSON. Raises ValueError if it is malformed."""
    known = _TOLERATIONS.known.get(raw)
    if known is None:
        known = _tolerations(raw)
        _TOLERATIONS.keep(raw, known, len(raw))
    return known


def read_anti_affinity(spec: objects.PodSpec) -> tuple[AffinityRule, ...]:
    """Return the required anti-affinity of an existing pod; empty if it cannot be read or is too large.

    The API server has already added matchLabelKeys to its selectors.
    """
    affinity = bytes(spec.affinity)
    if b"podAntiAffinity" not in affinity or len(affinity) > bounds.DECIDED_AFFINITY_BYTES:
        return ()
    with suppress(ValueError):
        found = objects.read_part(_anti_affinity_part_decoder, affinity, where="spec.affinity")
        raw = b"" if found is None else bytes(found.pod_anti_affinity)
        key = raw, bool(spec.node_name)
        known = _ANTI_AFFINITIES.known.get(key)
        if known is None:
            known = _anti_affinity(*key)
            _ANTI_AFFINITIES.keep(key, known, len(raw))
        return known
    return ()


def _anti_affinity(raw: bytes, is_placed: bool) -> tuple[AffinityRule, ...]:
    found = objects.read_part(_anti_decoder, raw, where="spec.affinity.podAntiAffinity")
    if found is not None and number_of_terms(NO_TERMS, found) > bounds.POD_TERMS:
        return ()
    read = read_terms(NO_TERMS, found or NO_TERMS, is_placed=is_placed)
    return anti_affinity(tuple([rule for rule, _ in read.rules]))


def _read(selector: bytes, affinity: bytes, tolerations: bytes, spread: bytes) -> Placement:
    problems: list[str] = []
    tolerated: tuple[Toleration, ...] = ()
    try:
        tolerated = read_tolerations(tolerations)
    except ValueError as error:
        problems.append(str(error))
    labels = _part(_selector_decoder, selector, "spec.nodeSelector", problems)
    wanted = _part(_affinity_decoder, affinity, "spec.affinity", problems)
    spreading = NOTHING
    try:
        spreading = read_spreading(spread)
    except ValueError as error:
        problems.append(str(error))
    if problems:
        return Placement(problems=tuple(problems))
    excess = tuple(_too_many(labels or {}, wanted, tolerated, spreading))
    if excess:
        return Placement(excess=excess)
    constraints = Constraints(
        node_selector=tuple((labels or {}).items()),
        terms=None if wanted is None else _terms(wanted.node_affinity),
        tolerations=tolerated,
    )
    interpod = NO_RULES
    if wanted is not None and (wanted.pod_affinity is not None or wanted.pod_anti_affinity is not None):
        interpod = read_terms(wanted.pod_affinity or NO_TERMS, wanted.pod_anti_affinity or NO_TERMS)
    is_open = spreading.is_open or interpod.is_open
    own = NO_CONSTRAINTS if constraints == NO_CONSTRAINTS else constraints
    return Placement(
        own,
        is_open,
        spreading,
        interpod,
        undecided_excess=tuple(_too_large_undecided(affinity, constraints)),
        slices=slices_of(constraints.possible(PRODUCT)) or replica_slices(constraints.possible(REPLICAS)),
    )


def _too_long(selector: bytes, affinity: bytes, tolerations: bytes, spread: bytes) -> tuple[str, ...]:
    found = [*bounds.excess("spec.affinity: length in bytes", len(affinity), bounds.DECIDED_AFFINITY_BYTES)]
    found += bounds.excess("spec.nodeSelector: length in bytes", len(selector), bounds.AFFINITY_BYTES)
    found += bounds.excess("spec.tolerations: length in bytes", len(tolerations), bounds.TOLERATION_BYTES)
    found += bounds.excess("spec.topologySpreadConstraints: length in bytes", len(spread), bounds.SPREAD_BYTES)
    return tuple(found)


def _too_many(
    labels: Mapping[str, str], wanted: _Affinity | None, tolerated: tuple[Toleration, ...], spreading: Spreading
) -> Iterator[str]:
    yield from bounds.excess("spec.nodeSelector: number of labels", len(labels), bounds.SELECTOR_TERMS)
    yield from bounds.excess("spec.tolerations: number", len(tolerated), bounds.TOLERATIONS)
    yield from bounds.excess("spec.topologySpreadConstraints: number", len(spreading.rules), bounds.SPREADS)
    if wanted is None:
        return
    required = None if wanted.node_affinity is None else wanted.node_affinity.required
    terms = 0 if required is None else len(required.node_selector_terms or ())
    yield from bounds.excess("spec.affinity: number of node selector terms", terms, bounds.DECIDED_NODE_TERMS)
    if wanted.pod_affinity is None and wanted.pod_anti_affinity is None:
        return
    between = number_of_terms(wanted.pod_affinity or NO_TERMS, wanted.pod_anti_affinity or NO_TERMS)
    yield from bounds.excess("spec.affinity: number of terms about other pods", between, bounds.POD_TERMS)


def _too_large_undecided(affinity: bytes, constraints: Constraints) -> Iterator[str]:
    yield from bounds.excess("spec.affinity: length in bytes", len(affinity), bounds.AFFINITY_BYTES)
    terms = len(constraints.terms or ())
    yield from bounds.excess("spec.affinity: number of node selector terms", terms, bounds.NODE_TERMS)


def _tolerations(raw: bytes) -> tuple[Toleration, ...]:
    found = objects.read_part(_tolerations_decoder, raw, where="spec.tolerations")
    return tuple(t for t in map(_toleration, found or ()) if t is not None)


_PLACEMENTS: Final = bounds.ByteCache[tuple[bytes, bytes, bytes, bytes], Placement]()
_ANTI_AFFINITIES: Final = bounds.ByteCache[tuple[bytes, bool], tuple[AffinityRule, ...]]()
_TOLERATIONS: Final = bounds.ByteCache[bytes, tuple[Toleration, ...]]()
_TERMS: Final = bounds.ByteCache[bytes, tuple[NodeTerm, ...]]()


def _terms(affinity: _NodeAffinity | None) -> tuple[NodeTerm, ...] | None:
    return None if affinity is None or affinity.required is None else _selector_terms(affinity.required)


def _selector_terms(selector: _NodeSelector) -> tuple[NodeTerm, ...]:
    return tuple(
        [
            NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
            for term in selector.node_selector_terms or ()
        ]
    )


def _requirements(listed: tuple[_Requirement, ...] | None) -> tuple[Requirement, ...]:
    return tuple([Requirement(r.key, r.operator, r.values or ()) for r in listed]) if listed else ()


def _toleration(found: _Toleration) -> Toleration | None:
    """Return a toleration; None for unknown operators and effects: the pod is then taken to tolerate less."""
    if found.operator not in (None, "", "Equal", "Exists", *_BOUNDS):
        return None
    if found.effect and found.effect not in _EFFECTS:
        return None
    return Toleration(
        key=found.key or "",
        exists=found.operator == "Exists",
        value=found.value or "",
        effect=_EFFECTS[found.effect] if found.effect else None,
        bound=_BOUNDS.get(found.operator or ""),
    )


def _part(decoder: "msgspec.json.Decoder[_T]", raw: bytes, where: str, problems: list[str]) -> _T | None:
    try:
        return objects.read_part(decoder, raw, where=where)
    except ValueError as error:
        problems.append(str(error))
        return None
