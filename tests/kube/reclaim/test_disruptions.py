"""PodDisruptionBudgets: which pods they cover."""

import json

import msgspec
import pytest

from tests import builders
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.nodes.holds import DisruptionBudget, to_disruption
from webhook.kube.objects import objects
from webhook.kube.pod.existing import to_reclaim_pod


def read(made):
    made["metadata"].setdefault("uid", "u1")
    return to_reclaim_pod(msgspec.json.decode(json.dumps(made), type=objects.Pod), BUILT_IN_RESOURCES)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]}, True),
        ({"matchLabels": {f"key-{number}": "x" for number in range(10_000)}}, True),
        (None, False),
    ],
    ids=[
        "by label",
        "by expression",
        "not this one",
        "an empty selector matches all",
        "an unknown operator",
        "too long to be read",
        "no selector matches nothing",
    ],
)
def test_budgets_cover_the_pods_of_their_selector(selector, want):
    body = {"metadata": {"name": "b", "namespace": "vision"}, "spec": {"selector": selector}}
    budget = to_disruption(msgspec.convert(body | {"status": {"disruptionsAllowed": 3}}, DisruptionBudget))
    assert budget.covers(read(builders.pod(labels={"app": "web"}))) is want
    assert (budget.guard, budget.allowed) == ("pdb vision/b", 3)


@pytest.mark.parametrize(
    ("policy", "healthy", "want"),
    [("AlwaysAllow", 0, True), ("IfHealthyBudget", 0, False), ("IfHealthyBudget", 2, True), (None, 2, True)],
    ids=["always", "too few are healthy", "enough are healthy", "the default"],
)
def test_pods_that_are_not_ready_go_by_the_policy_of_the_budget(policy, healthy, want):
    spec = {"selector": {}} | ({} if policy is None else {"unhealthyPodEvictionPolicy": policy})
    status = {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 2}
    body = {"metadata": {"name": "b", "namespace": "vision"}, "spec": spec, "status": status}
    assert to_disruption(msgspec.convert(body, DisruptionBudget)).spares_healthy_only is want
    uncounted = to_disruption(msgspec.convert(body | {"status": {}}, DisruptionBudget))
    assert uncounted.spares_healthy_only is (policy == "AlwaysAllow")
