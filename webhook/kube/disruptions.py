"""PodDisruptionBudgets: what they say about who may go."""

from typing import Final

import msgspec

from webhook.core.names import Namespace
from webhook.core.policy import LabelSelector
from webhook.core.selector import Operator, Requirement
from webhook.core.tenant import Disruption
from webhook.kube import objects

_NOTHING: Final = LabelSelector((Requirement("", Operator.IN, ()),))
"""Selects no pod: a budget without a selector guards nobody."""


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str
    operator: Operator
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    selector: _Selector | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int = 0


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def to_disruption(budget: DisruptionBudget) -> Disruption:
    """Translate a budget; one that the disruption controller has not looked at yet lets nobody go."""
    selector = budget.spec.selector
    return Disruption(
        namespace=Namespace(budget.metadata.namespace),
        name=budget.metadata.name,
        selector=_NOTHING if selector is None else LabelSelector(_requirements(selector)),
        allowed=budget.status.disruptions_allowed,
    )


def _requirements(selector: _Selector) -> tuple[Requirement, ...]:
    labels = [Requirement(key, Operator.IN, (value,)) for key, value in (selector.match_labels or {}).items()]
    return (*labels, *(Requirement(e.key, e.operator, e.values or ()) for e in selector.match_expressions or ()))
