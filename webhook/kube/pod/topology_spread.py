"""Topology spread constraints, as a pod writes them, to core rules."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.selector import Operator, Requirement
from webhook.core.model.topology import SpreadRule
from webhook.kube.objects import objects
from webhook.kube.objects.label_selectors import Selector, selector_of, to_selector

_HONOR, _IGNORE = "Honor", "Ignore"


class Spreading(NamedTuple):
    """A pod's rules; `keys` has the labels of each whose values are to be had in common. `is_open`: one cannot be read.

    The API server refuses what is malformed. What came after us only kube-scheduler judges.
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


@lru_cache(maxsize=128)
def _narrowed(rule: SpreadRule, own: tuple[tuple[str, str], ...]) -> SpreadRule:
    if rule.selector is None or not own:
        return rule
    more = [Requirement(key, Operator.IN, (value,)) for key, value in own]
    return rule._replace(selector=selector_of((*rule.selector.requirements, *more)))


def _rule(found: _Constraint) -> SpreadRule | None:
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
