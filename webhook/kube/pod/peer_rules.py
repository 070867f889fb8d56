"""Rules between pods: affinity and spreading.

From a pod's inter-pod affinity and anti-affinity to core rules.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import (
    Operator,
    Requirement,
)
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule, SpreadRule
from webhook.kube.objects import objects
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
