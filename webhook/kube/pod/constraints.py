"""Selectors, affinity, spreading.

From a pod's inter-pod affinity and anti-affinity to core rules.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeVar

import msgspec

from webhook.core.model.amounts import Namespace, ResourceName
from webhook.core.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    Effect,
    NodeTerm,
    Operator,
    Requirement,
    Toleration,
)
from webhook.core.model.demand import PRODUCT, REPLICAS, replica_slices, slices_of
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule, SpreadRule, TopologyRule, anti_affinity
from webhook.kube.objects import bounds, objects
from webhook.kube.objects.bounds import Selector, selector_of, to_selector


class Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A PodAffinityTerm."""

    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class Preference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A WeightedPodAffinityTerm."""

    weight: int = 1
    pod_affinity_term: Term = Term()


class Terms(msgspec.Struct, frozen=True, gc=False):
    """The terms of a podAffinity or a podAntiAffinity."""

    required: tuple[Term, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[Preference, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Keys(NamedTuple):
    """The matchLabelKeys and mismatchLabelKeys of a rule's terms."""

    match: tuple[str, ...] = ()
    mismatch: tuple[str, ...] = ()


NO_KEYS = Keys()


class InterPod(NamedTuple):
    """A pod's rules, each with the keys by which the pod's own labels extend its selector.

    `is_open`: some required terms use fields that are not read here; only kube-scheduler can evaluate them.
    """

    rules: tuple[tuple[AffinityRule, Keys], ...] = ()
    is_open: bool = False


NO_TERMS = Terms()
NO_RULES = InterPod()


def number_of_terms(affinity: Terms, anti_affinity: Terms) -> int:
    """Return the number of a pod's terms; a term counts once per namespace that it names."""
    terms = [
        each
        for listed in (affinity, anti_affinity)
        for each in (*(listed.required or ()), *(one.pod_affinity_term for one in listed.preferred or ()))
    ]
    return sum(max(1, len(each.namespaces or ())) for each in terms)


def read_terms(affinity: Terms, anti_affinity: Terms, *, is_placed: bool = False) -> InterPod:
    """Translate a pod's terms of affinity and anti-affinity.

    `is_placed`: the pod is on a node. Then its anti-affinity by a namespaceSelector is read, too: others must keep it.
    """
    rules = [_affinity_rule((term,), is_anti=True, is_placed=is_placed) for term in anti_affinity.required or ()]
    if affinity.required:
        rules.append(_affinity_rule(affinity.required, is_anti=False))
    preferred = [
        _affinity_rule((each.pod_affinity_term,), is_anti=terms is anti_affinity, weight=each.weight)
        for terms in (affinity, anti_affinity)
        for each in terms.preferred or ()
    ]
    return InterPod(tuple([rule for rule in (*rules, *preferred) if rule is not None]), None in rules)


def rules_of(interpod: InterPod, labels: Mapping[str, str]) -> tuple[AffinityRule, ...]:
    """Return a pod's rules, extended by its own labels (matchLabelKeys); the result is the same on a stored pod."""
    return tuple([rule if keys is NO_KEYS else _extended_affinity(rule, keys, labels) for rule, keys in interpod.rules])


def _extended_affinity(rule: AffinityRule, keys: Keys, labels: Mapping[str, str]) -> AffinityRule:
    if rule.selector is None:
        return rule
    more = [
        Requirement(key, operator, (labels[key],))
        for listed, operator in ((keys.match, Operator.IN), (keys.mismatch, Operator.NOT_IN))
        for key in listed
        if key in labels
    ]
    return rule._replace(selector=selector_of((*rule.selector.requirements, *more)))


def _affinity_rule(
    terms: tuple[Term, ...], *, is_anti: bool, weight: int = 0, is_placed: bool = False
) -> tuple[AffinityRule, Keys] | None:
    selected = [term.namespace_selector for term in terms if term.namespace_selector is not None]
    if selected and not is_placed:
        return None
    where = to_selector(selected[0]) if selected else None
    if selected and where is None:
        return None
    namespaces = {tuple(map(Namespace, sorted(set(term.namespaces or ())))) for term in terms}
    if where is not None:
        namespaces = {(*named, *EVERY_NAMESPACE) for named in namespaces} if where.requirements else {EVERY_NAMESPACE}
    selectors = [to_selector(term.label_selector) for term in terms if term.label_selector is not None]
    if len(namespaces) > 1 or None in selectors:
        return None
    keys = tuple([term.topology_key for term in terms])
    selector = _all_of(selectors) if len(selectors) == len(terms) else None
    match = tuple([key for term in terms for key in term.match_label_keys or ()])
    mismatch = tuple([key for term in terms for key in term.mismatch_label_keys or ()])
    about = where if where is not None and where.requirements else None
    rule = AffinityRule(keys, is_anti, selector, namespaces.pop(), weight, about)
    return rule, Keys(match, mismatch) if match or mismatch else NO_KEYS


def _all_of(selectors: list[LabelSelector | None]) -> LabelSelector:
    return selector_of(tuple(chain.from_iterable(each.requirements for each in selectors if each is not None)))


# From a pod's topology spread constraints to core rules.


_HONOR, _IGNORE = "Honor", "Ignore"


class Spreading(NamedTuple):
    """A pod's rules; `keys` has the matchLabelKeys of each. `is_open`: a required constraint cannot be evaluated here.

    The API server refuses malformed constraints; only kube-scheduler can evaluate those with unknown operators.
    """

    rules: tuple[SpreadRule, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    is_open: bool = False


NOTHING: Final = Spreading()


class _Constraint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: Selector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


_decoder: Final = msgspec.json.Decoder(tuple[_Constraint, ...])


def read_spreading(raw: bytes) -> Spreading:
    """Translate a pod's constraints. Raises ValueError if they are malformed."""
    found = objects.read_part(_decoder, raw, where="spec.topologySpreadConstraints")
    if not found:
        return NOTHING
    read = [(_spread_rule(each), each) for each in found]
    rules = tuple([rule for rule, _ in read if rule is not None])
    keys = tuple([each.match_label_keys or () for rule, each in read if rule is not None])
    return Spreading(
        rules,
        keys if any(keys) else (),
        any(rule is None and each.when_unsatisfiable == "DoNotSchedule" for rule, each in read),
    )


def rules_for(spreading: Spreading, labels: Mapping[str, str]) -> tuple[SpreadRule, ...]:
    """Return a pod's rules, extended by its own labels (matchLabelKeys); the result is the same on a stored pod."""
    if not spreading.keys:
        return spreading.rules
    return tuple(
        [
            _extended_spread(rule, tuple([(key, labels[key]) for key in keys if key in labels]))
            for rule, keys in zip(spreading.rules, spreading.keys, strict=True)
        ]
    )


@lru_cache(maxsize=128)
def _extended_spread(rule: SpreadRule, own: tuple[tuple[str, str], ...]) -> SpreadRule:
    if rule.selector is None or not own:
        return rule
    more = [Requirement(key, Operator.IN, (value,)) for key, value in own]
    return rule._replace(selector=selector_of((*rule.selector.requirements, *more)))


def _spread_rule(found: _Constraint) -> SpreadRule | None:
    selector = None if found.label_selector is None else to_selector(found.label_selector)
    if selector is None and found.label_selector is not None:
        return None
    return SpreadRule(
        found.topology_key,
        found.max_skew,
        found.when_unsatisfiable == "DoNotSchedule",
        selector,
        found.min_domains or 1,
        honors_affinity=(found.node_affinity_policy or _HONOR) == _HONOR,
        honors_taints=(found.node_taints_policy or _IGNORE) == _HONOR,
    )


# A pod's placement constraints: from raw selectors, affinity and tolerations to core Constraints.
#
# Pods of one template have identical bytes in these parts, so the parsed constraints are cached by those bytes. Those
# of a decided pod name its nodes: the watch reads them again, and pods of one burst often have the same nodes.


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
    """Return the slices that a pod's `nvidia.com/gpu` must be (mig_slices.py, replicas.py); few pods constrain this."""
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
