"""Other objects that a workload refers to, and autoscalers that refer to it."""

import pytest

from webhook.kube.kinds.kind_row import NO_RELATED, Related
from webhook.kube.kinds.model import Budget, BudgetSpentError, Count


def named(kind, name="it", namespace=None, **spec):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"kind": kind, "metadata": metadata, "spec": spec}


def scaler(kind="HorizontalPodAutoscaler", target=None, **more):
    return named(kind, "h", scaleTargetRef={"kind": "Deployment", "name": "it"} if target is None else target, **more)


def test_objects_are_found_in_their_namespace_or_in_any_if_they_have_none():
    here, there = named("ServingRuntime"), named("ServingRuntime", namespace="elsewhere")
    related = Related.of([here, there], namespace="team-a")
    assert related.find("ServingRuntime", "it", namespace="team-a") is here
    assert related.find("ServingRuntime", "it", namespace="elsewhere") is there
    assert related.find("ServingRuntime", "it", namespace="team-b") is None
    assert related.find("ServingRuntime", "it") is here
    assert NO_RELATED.find("ServingRuntime", "it") is None


@pytest.mark.parametrize(
    ("document", "want"),
    [
        (scaler(maxReplicas=7), Count(7)),
        (scaler(), Count(None, "maxReplicas of its HorizontalPodAutoscaler is not set")),
        (scaler("ScaledObject", maxReplicaCount=5), Count(5)),
        (scaler("ScaledObject"), Count(100)),
        (scaler("ScaledObject", {"name": "it"}, maxReplicaCount=5), Count(5)),
        (scaler(target={"kind": "StatefulSet", "name": "it"}, maxReplicas=7), None),
        (scaler(target={"kind": "Deployment", "name": "other"}, maxReplicas=7), None),
    ],
    ids=["hpa", "hpa without a maximum", "keda", "keda's default", "a Deployment by default", "kind", "name"],
)
def test_an_autoscaler_sets_the_maximum_of_its_target(document, want):
    related = Related.of([document], namespace="team-a")
    assert related.scaled_to("Deployment", "it", namespace="team-a") == want
    assert related.scaled_to("Deployment", "it", namespace="team-b") is None


def test_of_several_autoscalers_the_first_horizontal_one_counts():
    several = [scaler("ScaledObject", maxReplicaCount=5), scaler(maxReplicas=7), scaler(maxReplicas=9)]
    several[2]["metadata"]["name"] = "other"
    assert Related.of(several, namespace="team-a").scaled_to("Deployment", "it", namespace="team-a") == Count(7)


def limit_range(*limits, namespace="team-a"):
    return named("LimitRange", namespace=namespace, limits=list(limits))


def test_a_limit_range_gives_devices_to_containers_that_request_none():
    given = {"default": {"nvidia.com/gpu": "1", "cpu": "4"}, "defaultRequest": {"a.com/nic": "2"}}
    related = Related.of([limit_range({"type": "Pod", "max": {"nvidia.com/gpu": "8"}}, {"type": "Container", **given})])
    spec = {
        "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"nvidia.com/gpu": 4}}}],
        "initContainers": [{"name": "c", "resources": {"requests": {"a.com/nic": 1}}}],
    }
    made = related.with_defaults(spec, "team-a", Budget())
    a, b = (each["resources"]["limits"] for each in made["containers"])
    assert a == {"nvidia.com/gpu": "1", "a.com/nic": "2"}
    assert b == {"nvidia.com/gpu": 4, "a.com/nic": "2"}
    [c] = made["initContainers"]
    assert c["resources"]["requests"] == {"nvidia.com/gpu": "1", "a.com/nic": 1}
    assert related.with_defaults(spec, "elsewhere", Budget()) is spec
    assert spec["containers"][0] == {"name": "a"}


def test_defaults_take_from_the_budget_before_they_are_given():
    related = Related.of([limit_range({"type": "Container", "default": {f"a.com/{n}": "1" for n in range(100)}})])
    with pytest.raises(BudgetSpentError):
        related.with_defaults({"containers": [{}] * 100}, "team-a", Budget(steps=9_000))
