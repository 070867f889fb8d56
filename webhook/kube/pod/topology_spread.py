"""From a pod's topology spread constraints to core rules."""

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
    read = [(_rule(each), each) for each in found]
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
            _extended(rule, tuple([(key, labels[key]) for key in keys if key in labels]))
            for rule, keys in zip(spreading.rules, spreading.keys, strict=True)
        ]
    )


@lru_cache(maxsize=128)
def _extended(rule: SpreadRule, own: tuple[tuple[str, str], ...]) -> SpreadRule:
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
