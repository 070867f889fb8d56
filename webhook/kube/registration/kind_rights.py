"""The rights that Fairgate needs for kinds of workloads, by their rows."""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from webhook.core.model.idle_rules import IdleAction
from webhook.core.model.policy import Policy
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.objects import keys
from webhook.kube.workloads.scalers import SCALER_API, SCALERS

_Rules = list[dict[str, Any]]


class Component(StrEnum):
    """The components that read workloads."""

    SERVER = "server"
    EVICTOR = "evictor"


NOTEBOOKS: Final[dict[str, Any]] = {"apiGroups": ["kubeflow.org"], "resources": ["notebooks"], "verbs": ["patch"]}
"""The right to stop Notebooks, for policies that evict pods which do not use their GPUs."""


def stops_notebooks(policy: Policy) -> bool:
    """Whether a policy evicts pods that do not use their GPUs, of any team."""
    return any(IdleAction.EVICT in policy.on_idle(team.name) for team in policy.teams)


def kind_rules(component: Component) -> _Rules:
    """Return the RBAC rules of a component: to read what makes pods, and to annotate or watch it."""
    scalers = {"apiGroups": [SCALER_API.partition("/")[0]], "resources": [SCALERS], "verbs": ["list", "watch"]}
    owners = [row for row in BUILT_IN if row.is_intermediate and row.kind.kind != "Pod"]
    if component is Component.EVICTOR:
        failing = (row for row in BUILT_IN if row.failures is not None)
        return [*_rules(owners, ["get"]), *_rules(failing, ["list", "watch"]), scalers]
    described = [row for row in BUILT_IN if row.gang.marker or row.gang.of_controller]
    retried = (row for row in BUILT_IN if row.is_retried)
    return [*_rules([*owners, *described], ["get"]), *_rules(retried, ["patch"]), scalers]


def kind_roles(policy: Policy | None = None) -> list[dict[str, Any]]:
    """Return a ClusterRole with these rules for each component, and with what a policy needs besides."""
    more = {Component.EVICTOR: [NOTEBOOKS]} if policy is not None and stops_notebooks(policy) else {}
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"fairgate-{component}-kinds", "labels": dict(keys.OWN_LABELS)},
            "rules": [*kind_rules(component), *more.get(component, ())],
        }
        for component in Component
    ]


def _rules(rows: Iterable[Row], verbs: list[str]) -> _Rules:
    resources: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        resources[row.kind.group].add(row.kind.resource)
    return [
        {"apiGroups": [group], "resources": sorted(names), "verbs": list(verbs)}
        for group, names in sorted(resources.items())
    ]
