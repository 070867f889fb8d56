"""A pod of a rolling update: which pods are those from before it."""

import pytest

from tests.core.support import make
from webhook.core.explain.rollout import OldPods, old_pods
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.pod import Owner


def resident(name, owner, gpus=4, kind="ReplicaSet", **more):
    return make.resident(gpus, uid=name, owner=Owner(kind, owner), **more)


def new_pod(owner="llm-77aa", kind="ReplicaSet", label="77aa"):
    return make.pod(owner=Owner(kind, owner), labels={"pod-template-hash": label} if label else {})


def place(*residents):
    world = make.world(make.policy())
    for each in residents:
        world.set_pod(each)
    return world


def test_the_pods_of_other_replica_sets_of_its_deployment_are_old():
    world = place(resident("a", "llm-6f7d"), resident("b", "llm-6f7d"), resident("c", "llm-5c5c", gpus=1))
    assert old_pods(new_pod(), world) == OldPods(("llm-5c5c", "llm-6f7d"), 9 * ONE_GPU)


@pytest.mark.parametrize(
    "other",
    [
        resident("a", "llm-77aa"),
        resident("a", "llm-big-6f7d"),
        resident("a", "other-6f7d"),
        resident("a", "llm-6f7d", kind="Job"),
        resident("a", "llm-6f7d", gpus=0),
        resident("a", "llm-6f7d", namespace="elsewhere"),
    ],
    ids=["its own", "a longer name", "another Deployment", "another kind", "no GPUs", "another namespace"],
)
def test_other_pods_are_none(other):
    assert old_pods(new_pod(), place(other)) is None


@pytest.mark.parametrize("pod", [new_pod(kind="Job"), new_pod(label=""), new_pod(label="ffff"), make.pod()])
def test_a_pod_of_no_deployment_has_none(pod):
    assert old_pods(pod, place(resident("a", "llm-6f7d"))) is None
