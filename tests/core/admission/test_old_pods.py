"""A pod of a rolling update: which pods are from before it, and where a message says that it waits behind them."""

import pytest

from tests.core.support import make
from webhook.core.admission.admission import admit
from webhook.core.admission.pod_rules import OldPods, old_pods
from webhook.core.explain.explanation import explain
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.decision import Admit, Deny, Queue
from webhook.core.model.pod import CONTROLLER, Owner
from webhook.core.model.policy import OnLimit
from webhook.core.model.reasons import Code


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


def test_many_replica_sets_of_one_name_are_not_all_looked_at():
    world = place(*[resident(f"p{number}", f"llm-{number}", gpus=1) for number in range(100)])
    assert len(old_pods(new_pod(), world).replica_sets) == 16
    for number in range(100):
        world.remove_pod(f"p{number}")
    assert old_pods(new_pod(), world) is None


BEHIND = "its Deployment's old pods hold 4 GPUs (llm-6f7d), and may stay until it runs: "


def surge(gpus=4, **more):
    return make.pod(gpus, owner=Owner("ReplicaSet", "llm-77aa"), labels={"pod-template-hash": "77aa"}, **more)


def full(*, limit=4, nodes=1, old="llm-6f7d", **more):
    """A team at its limit, or a node without room, by four GPUs of an old ReplicaSet."""
    world = make.world(
        make.policy(make.team(limit_=limit, **more)), nodes=[make.node(f"n{each}", gpus=4) for each in range(nodes)]
    )
    world.set_pod(resident("a", old, node="n0"))
    return world


def test_a_refusal_says_that_the_old_pods_hold_what_is_missing():
    world = full(nodes=3)
    decision = admit(surge(), CONTROLLER, world)
    assert isinstance(decision, Deny)
    assert BEHIND + "set maxSurge: 0 and maxUnavailable: 1" in decision.reasons[0].text
    assert decision.reasons[0].code is Code.TEAM_LIMIT_EXCEEDED
    assert explain(surge(), CONTROLLER, world).decision == decision


def test_so_does_the_warning_of_a_pod_that_finds_no_room():
    decision = admit(surge(), CONTROLLER, full(limit=40))
    assert isinstance(decision, Admit)
    assert [BEHIND in each.text for each in decision.warnings] == [True]


def test_so_does_a_pod_in_line():
    decision = admit(surge(), CONTROLLER, full(nodes=3, on_limit=OnLimit.QUEUE))
    assert isinstance(decision, Queue)
    assert [each.text for each in decision.warnings if BEHIND in each.text]
    assert BEHIND not in decision.reason.text, "the leader writes why it waits, for all pods alike"


@pytest.mark.parametrize(
    ("pod", "world"),
    [
        (surge(), full(nodes=3, old="other-6f7d")),
        (surge(), full(nodes=3, old="llm-77aa")),
        (surge(5), full(nodes=3)),
        (surge(4, pool="none"), full(nodes=3)),
        (surge(), full(nodes=3, limit=40)),
    ],
    ids=["another Deployment", "its own ReplicaSet", "too little", "refused for something else, too", "it runs"],
)
def test_otherwise_nothing_is_said_of_old_pods(pod, world):
    assert "old pods" not in str(admit(pod, CONTROLLER, world))
