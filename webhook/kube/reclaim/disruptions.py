"""PodDisruptionBudgets: which pods they cover, and how many of those may be evicted."""

from typing import Final

import msgspec

from webhook.core.model.names import Namespace
from webhook.core.model.policy import LabelSelector
from webhook.core.model.selector import Operator, Requirement
from webhook.core.reclaim.reclaim_pod import Disruption
from webhook.kube.objects import objects
from webhook.kube.objects.label_selectors import Selector, to_selector

_NOTHING: Final = LabelSelector((Requirement("", Operator.IN, ()),))
"""Selects no pod: a budget without a selector guards none."""

_EVERYTHING: Final = LabelSelector(())

_ALWAYS_ALLOW: Final = "AlwaysAllow"


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    selector: Selector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def to_disruption(budget: DisruptionBudget) -> Disruption:
    """Return a budget; one that the disruption controller has not counted yet allows no eviction of ready pods.

    Pods that are not ready go without it by its own policy, and by default where enough others are healthy.

    A selector with an unknown operator, or longer than any that is read, counts as one that selects all: the API server
    may refuse to evict any pod of the namespace.
    """
    written, status = budget.spec.selector, budget.status
    selector = _NOTHING if written is None else to_selector(written) or _EVERYTHING
    return Disruption(
        namespace=Namespace(budget.metadata.namespace),
        name=budget.metadata.name,
        selector=selector,
        allowed=status.disruptions_allowed,
        spares_healthy_only=budget.spec.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW
        or status.current_healthy >= status.desired_healthy > 0,
    )
