"""From label selectors of the API to core selectors."""

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.core.model.policy import LabelSelector
from webhook.core.model.selector import Operator, Requirement
from webhook.kube.objects import bounds

_OPERATORS: Final = {
    each.value: each for each in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
}


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A LabelSelector of the API."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


def to_selector(written: Selector) -> LabelSelector | None:
    """Translate a selector of a tenant; None if it is too long or has an unknown operator."""
    is_long = _is_long(written.match_expressions or (), written.match_labels or {})
    return None if is_long else whole_selector(written)


def whole_selector(written: Selector) -> LabelSelector | None:
    """Translate a selector that only admins write, however long it is; None if it has an unknown operator."""
    expressions, labelled = written.match_expressions or (), written.match_labels or {}
    if any(each.operator not in _OPERATORS for each in expressions):
        return None
    labels = [Requirement(key, Operator.IN, (value,)) for key, value in labelled.items()]
    return selector_of((*labels, *(Requirement(e.key, _OPERATORS[e.operator], e.values or ()) for e in expressions)))


def _is_long(expressions: tuple[_Expression, ...], labels: Mapping[str, str]) -> bool:
    """Whether a selector is too long to evaluate against every pod of a namespace."""
    parts = len(labels) + len(expressions) + sum(len(each.values or ()) for each in expressions)
    if parts > bounds.LABEL_SELECTOR_PARTS:
        return True
    text = sum(len(each.key) + sum(map(len, each.values or ())) for each in expressions)
    return text + sum(len(key) + len(value) for key, value in labels.items()) > bounds.LABEL_SELECTOR_BYTES


def selector_of(requirements: tuple[Requirement, ...]) -> LabelSelector:
    """Return a selector in canonical order: equal selectors share one count of pods."""
    return LabelSelector(tuple(sorted(set(requirements), key=repr)))
