"""Topology spread constraints, as a pod writes them, to core rules."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from webhook.core.policy import LabelSelector
from webhook.core.selector import Operator, Requirement
from webhook.core.topology import SpreadRule
from webhook.kube import objects

_HONOR, _IGNORE = "Honor", "Ignore"
_OPERATORS: Final = {
    each.value: each for each in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
}


class Spreading(NamedTuple):
    """A pod's rules; `keys` has the labels of each whose values are to be had in common. `is_open`: one cannot be read.

    The API server refuses what is malformed. What came after us only kube-scheduler judges.
    """

    rules: tuple[SpreadRule, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    is_open: bool = False


NOTHING: Final = Spreading()


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class _Constraint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: _Selector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


_decoder: Final = msgspec.json.Decoder(tuple[_Constraint, ...])


def read_spreading(raw: bytes) -> Spreading:
    """Read all constraints of a pod. Raises ValueError where they are none."""
    found = objects.read_part(_decoder, raw, where="spec.topologySpreadConstraints")
    if not found:
        return NOTHING
    read = [(_rule(each), each) for each in found]
    rules = tuple([rule for rule, _ in read if rule is not None])
    keys = tuple([each.match_label_keys or () for rule, each in read if rule is not None])
    return Spreading(
        rules,
        keys if any(keys) else (),
        any(rule is None and each.when_unsatisfiable == "DoNotSchedule" for rule, each in read),
    )


def rules_for(spreading: Spreading, labels: Mapping[str, str]) -> tuple[SpreadRule, ...]:
    """Complete a pod's rules by its own labels (matchLabelKeys); where the API server did so, nothing changes."""
    if not spreading.keys:
        return spreading.rules
    return tuple(
        [
            _narrowed(rule, tuple([(key, labels[key]) for key in keys if key in labels]))
            for rule, keys in zip(spreading.rules, spreading.keys, strict=True)
        ]
    )


@lru_cache(maxsize=1024)
def _narrowed(rule: SpreadRule, own: tuple[tuple[str, str], ...]) -> SpreadRule:
    if rule.selector is None or not own:
        return rule
    more = [Requirement(key, Operator.IN, (value,)) for key, value in own]
    return rule._replace(selector=_selector((*rule.selector.requirements, *more)))


def _rule(found: _Constraint) -> SpreadRule | None:
    selector = None
    if found.label_selector is not None:
        requirements = _requirements(found.label_selector)
        if requirements is None:
            return None
        selector = _selector(requirements)
    return SpreadRule(
        found.topology_key,
        found.max_skew,
        found.when_unsatisfiable == "DoNotSchedule",
        selector,
        found.min_domains or 1,
        honors_affinity=(found.node_affinity_policy or _HONOR) == _HONOR,
        honors_taints=(found.node_taints_policy or _IGNORE) == _HONOR,
    )


def _requirements(selector: _Selector) -> tuple[Requirement, ...] | None:
    expressions = selector.match_expressions or ()
    if any(each.operator not in _OPERATORS for each in expressions):
        return None
    labels = [Requirement(key, Operator.IN, (value,)) for key, value in (selector.match_labels or {}).items()]
    return (*labels, *(Requirement(e.key, _OPERATORS[e.operator], e.values or ()) for e in expressions))


def _selector(requirements: tuple[Requirement, ...]) -> LabelSelector:
    """Write a selector in one way, however it was written: pods are counted once for each."""
    return LabelSelector(tuple(sorted(set(requirements), key=repr)))
