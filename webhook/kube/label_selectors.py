"""Label selectors, as the API writes them, to core selectors."""

from typing import Final

import msgspec

from webhook.core.policy import LabelSelector
from webhook.core.selector import Operator, Requirement

_OPERATORS: Final = {
    each.value: each for each in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
}


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A selector as it is written."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


def to_selector(written: Selector) -> LabelSelector | None:
    """Translate a selector; None where it has an operator that no version knew when this was written."""
    expressions = written.match_expressions or ()
    if any(each.operator not in _OPERATORS for each in expressions):
        return None
    labels = [Requirement(key, Operator.IN, (value,)) for key, value in (written.match_labels or {}).items()]
    return selector_of((*labels, *(Requirement(e.key, _OPERATORS[e.operator], e.values or ()) for e in expressions)))


def selector_of(requirements: tuple[Requirement, ...]) -> LabelSelector:
    """Write a selector in one way, however it was written: pods are counted once for each."""
    return LabelSelector(tuple(sorted(set(requirements), key=repr)))
