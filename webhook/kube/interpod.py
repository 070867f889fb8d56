"""Required inter-pod affinity and anti-affinity, as a pod writes them, to core rules."""

from itertools import chain
from typing import NamedTuple

import msgspec

from webhook.core.names import Namespace
from webhook.core.policy import LabelSelector
from webhook.core.topology import AffinityRule
from webhook.kube.label_selectors import Selector, selector_of, to_selector


class Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A term as it is written."""

    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class InterPod(NamedTuple):
    """A pod's rules. `is_open`: some depend on more than is read here, and only kube-scheduler judges them."""

    rules: tuple[AffinityRule, ...] = ()
    is_open: bool = False


NOTHING = InterPod()


def read_terms(affinity: tuple[Term, ...], anti_affinity: tuple[Term, ...]) -> InterPod:
    """Translate the required terms of a pod: pods beside it must match all of the one, none of the other."""
    rules = [_rule((term,), is_anti=True) for term in anti_affinity]
    if affinity:
        rules.append(_rule(affinity, is_anti=False))
    return InterPod(tuple([rule for rule in rules if rule is not None]), None in rules)


def _rule(terms: tuple[Term, ...], *, is_anti: bool) -> AffinityRule | None:
    if any(term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys for term in terms):
        return None
    namespaces = {tuple(map(Namespace, term.namespaces or ())) for term in terms}
    selectors = [to_selector(term.label_selector) for term in terms if term.label_selector is not None]
    if len(namespaces) > 1 or None in selectors:
        return None
    keys = tuple([term.topology_key for term in terms])
    selector = _all_of(selectors) if len(selectors) == len(terms) else None
    return AffinityRule(keys, is_anti, selector, namespaces.pop())


def _all_of(selectors: list[LabelSelector | None]) -> LabelSelector:
    return selector_of(tuple(chain.from_iterable(each.requirements for each in selectors if each is not None)))
