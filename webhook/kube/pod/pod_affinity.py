"""Inter-pod affinity and anti-affinity, as a pod writes them, to core rules."""

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from webhook.core.model.names import Namespace
from webhook.core.model.policy import LabelSelector
from webhook.core.model.selector import Operator, Requirement
from webhook.core.model.topology import AffinityRule
from webhook.kube.objects.label_selectors import Selector, selector_of, to_selector


class Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A term as it is written."""

    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class Preference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A preferred term as it is written."""

    weight: int = 1
    pod_affinity_term: Term = Term()


class Terms(msgspec.Struct, frozen=True, gc=False):
    """The terms of an affinity, or of an anti-affinity."""

    required: tuple[Term, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[Preference, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Keys(NamedTuple):
    """The labels whose values are to be had in common with the pod, and those whose values are to differ."""

    alike: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()


NO_KEYS = Keys()


class InterPod(NamedTuple):
    """A pod's rules, each with the keys that complete its selector by the pod's own labels.

    `is_open`: some that are required depend on more than is read here, and only kube-scheduler judges them.
    """

    rules: tuple[tuple[AffinityRule, Keys], ...] = ()
    is_open: bool = False


NO_TERMS = Terms()
NO_RULES = InterPod()


def number_of_terms(affinity: Terms, anti_affinity: Terms) -> int:
    """Count a pod's terms; one that is about several namespaces counts for each."""
    terms = [
        each
        for listed in (affinity, anti_affinity)
        for each in (*(listed.required or ()), *(wish.pod_affinity_term for wish in listed.preferred or ()))
    ]
    return sum(max(1, len(each.namespaces or ())) for each in terms)


def read_terms(affinity: Terms, anti_affinity: Terms) -> InterPod:
    """Translate a pod's terms: pods beside it must match all that the one requires, none that the other does."""
    rules = [_rule((term,), is_anti=True) for term in anti_affinity.required or ()]
    if affinity.required:
        rules.append(_rule(affinity.required, is_anti=False))
    wished = [
        _rule((each.pod_affinity_term,), is_anti=terms is anti_affinity, weight=each.weight)
        for terms in (affinity, anti_affinity)
        for each in terms.preferred or ()
    ]
    return InterPod(tuple([rule for rule in (*rules, *wished) if rule is not None]), None in rules)


def rules_of(interpod: InterPod, labels: Mapping[str, str]) -> tuple[AffinityRule, ...]:
    """Complete a pod's rules by its own labels; where the API server did so, nothing changes."""
    return tuple([rule if keys is NO_KEYS else _completed(rule, keys, labels) for rule, keys in interpod.rules])


def _completed(rule: AffinityRule, keys: Keys, labels: Mapping[str, str]) -> AffinityRule:
    if rule.selector is None:
        return rule
    more = [
        Requirement(key, operator, (labels[key],))
        for named, operator in ((keys.alike, Operator.IN), (keys.unlike, Operator.NOT_IN))
        for key in named
        if key in labels
    ]
    return rule._replace(selector=selector_of((*rule.selector.requirements, *more)))


def _rule(terms: tuple[Term, ...], *, is_anti: bool, weight: int = 0) -> tuple[AffinityRule, Keys] | None:
    if any(term.namespace_selector is not None for term in terms):
        return None
    namespaces = {tuple(map(Namespace, sorted(set(term.namespaces or ())))) for term in terms}
    selectors = [to_selector(term.label_selector) for term in terms if term.label_selector is not None]
    if len(namespaces) > 1 or None in selectors:
        return None
    keys = tuple([term.topology_key for term in terms])
    selector = _all_of(selectors) if len(selectors) == len(terms) else None
    alike = tuple([key for term in terms for key in term.match_label_keys or ()])
    unlike = tuple([key for term in terms for key in term.mismatch_label_keys or ()])
    rule = AffinityRule(keys, is_anti, selector, namespaces.pop(), weight)
    return rule, Keys(alike, unlike) if alike or unlike else NO_KEYS


def _all_of(selectors: list[LabelSelector | None]) -> LabelSelector:
    return selector_of(tuple(chain.from_iterable(each.requirements for each in selectors if each is not None)))
