"""A decision step by step: the steps are those of the decision, and the advised request would really run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, GPU, demand, gpus, node, pod, policy, pool, resident, team, world
from webhook.core.admission.admission import admit
from webhook.core.devices.claim_users import ClaimKey, ClassCount, DeviceRequest
from webhook.core.explain.explanation import explain
from webhook.core.model.amounts import Namespace, NodeName, ResourceName, Uid
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.demand import ClaimRef
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.policy import LabelSelector
from webhook.core.model.reasons import Code
from webhook.core.placement.rejecting_nodes import STRIKES, Rejection
from webhook.policy.sections import BUILT_IN


def limits(shown):
    return {
        limit.subject.text: (limit.taken, limit.limit, limit.is_exceeded_by(shown.pod.demand.gpus))
        for limit in shown.limits
    }


def test_every_limit_has_its_sum_and_holders():
    shares = {"A100": team(guaranteed=2, limit_=9).gpus}
    rules = policy(team(limit_=10, per_pod=gpus(4), per_user=gpus(20), models=shares))
    held = [resident(7, name="big", user="alice@example.com", node="n0"), resident(2, name="small", node="n0")]
    place = world(rules, residents=held)
    explanation = explain(pod(5), ALICE, place)
    assert limits(explanation) == {
        "one pod of team team-a": (0, gpus(4), True),
        "team team-a": (gpus(9), gpus(10), True),
        "user alice@example.com in team team-a": (gpus(7), gpus(20), False),
        "team team-a on A100": (0, gpus(9), False),
    }
    assert explanation.holders == (("team-a/Pod/big", gpus(7)), ("team-a/Pod/small", gpus(2)))
    assert explanation.guaranteed_left == gpus(11)
    assert isinstance(explanation.decision, Deny)


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({}, {"open": None, "nvlink": None}, id="both are open"),
        pytest.param({"pool": "open"}, {"nvlink": "the pod is pinned to pool open"}, id="a pin excludes the others"),
        pytest.param({"requires": frozenset({"nvlink"})}, {"open": "does not offer nvlink"}, id="a capability"),
        pytest.param(
            {"labels": {"app": "kafka"}},
            {"kafka": None, "open": "the pod is selected by another pool"},
            id="a pool that selects the pod",
        ),
    ],
)
def test_a_closed_pool_says_why(more, want):
    match = LabelSelector((Requirement("app", Operator.IN, ("kafka",)),))
    pools = (
        pool("open"),
        pool("nvlink", capabilities=frozenset({"nvlink"})),
        pool("kafka", match=match),
        pool("others", teams=frozenset({"team-b"})),
    )
    explanation = explain(pod(**more), ALICE, world(policy(pools=pools)))
    closed = {step.pool.name: step.closed for step in explanation.pools}
    assert closed.items() >= want.items()
    assert closed["others"] == "team team-a may not use it"
    assert more.get("labels") or closed["kafka"] in {
        "its match selects other pods only",
        "the pod is pinned to pool open",
    }
    assert all((step.nodes is None) == (step.closed is not None) for step in explanation.pools)


def test_nodes_without_room_are_counted_by_cause():
    place = world(nodes=[node("a"), node("b", is_cordoned=True), node("c", gpus=2)], residents=[resident(9, node="a")])
    [step] = explain(pod(4), ALICE, place).pools
    assert step.nodes.with_room == 0
    assert dict(step.nodes.filtered) == {
        "cordoned": ("b",),
        "too small even when empty": ("c",),
        f"too little {GPU} free": ("a",),
    }


@pytest.mark.parametrize(
    ("name", "obstacles", "place"),
    [
        pytest.param("a", ("the pod asks for nvidia.com/gpu 4, 1 of 10 are free",), None, id="full"),
        pytest.param("b", ("it is cordoned",), None, id="cordoned"),
        pytest.param("c", ("the pod asks for nvidia.com/gpu 4, the node has 2",), None, id="small"),
        pytest.param("d", (), 1, id="it has room"),
    ],
)
def test_a_requested_node_lists_all_obstacles(name, obstacles, place):
    nodes = [node("a"), node("b", is_cordoned=True), node("c", gpus=2), node("d")]
    [step] = explain(pod(4), ALICE, world(nodes=nodes, residents=[resident(9, node="a")]), node=name).pools
    assert (step.node_step.node, step.node_step.obstacles, step.node_step.place) == (name, obstacles, place)


def test_another_pool_that_has_room_is_named():
    rules = policy(
        pools=(
            pool("full", node_selector=(("at", "full"),)),
            pool("free", node_selector=(("at", "free"),)),
            pool("closed", node_selector=(("at", "free"),), teams=frozenset({"team-b"})),
        )
    )
    nodes = [node("f", labels={"at": "full"}), node("e", labels={"at": "free"})]
    explanation = explain(pod(4, pool="full"), ALICE, world(rules, nodes, [resident(8, node="f", namespace="team-b")]))
    assert explanation.elsewhere == ("free",)
    assert dict(explanation.smaller.devices) == {GPU: 2}


def test_a_pod_that_runs_needs_no_advice():
    explanation = explain(pod(4), ALICE, world())
    assert (explanation.runs_now, explanation.smaller, explanation.elsewhere) == (True, None, ())


def test_a_pod_that_is_not_judged_has_no_steps():
    explanation = explain(pod(0), ALICE, world())
    assert explanation.decision.reason.code is Code.NO_GPU
    assert (explanation.limits, explanation.pools) == ((), ())


@given(st.integers(1, 24), st.lists(st.integers(1, 10), max_size=4), st.integers(0, 30))
def test_the_smaller_request_is_the_largest_that_runs(asked, held, limit):
    place = world(policy(team(limit_=limit)))
    for number, count in enumerate(held):
        place.set_pod(resident(count, uid=f"u{number}", node=f"n{number}"))

    def runs(count):
        decision = admit(pod(demand=demand(count)), ALICE, place)
        return isinstance(decision, Admit) and not decision.warnings

    explanation = explain(pod(asked), ALICE, place)
    assert explanation.decision == admit(pod(asked), ALICE, place)
    want = None if runs(asked) else next((count for count in range(asked - 1, 0, -1) if runs(count)), None)
    assert (None if explanation.smaller is None else dict(explanation.smaller.devices)[GPU]) == want


def test_a_resource_without_a_weight_is_refused_without_steps():
    name = ResourceName("acme.com/gpu")
    strange = replace(demand(1), requests=(*demand(1).requests, (name, 1)), strange=(name,))
    explanation = explain(pod(demand=strange), ALICE, world())
    assert [reason.code for reason in explanation.decision.reasons] == [Code.UNKNOWN_GPU_RESOURCE]
    assert (explanation.limits, explanation.pools, explanation.smaller) == ((), (), None)


def test_a_claim_is_counted_and_has_no_smaller_request():
    place = world(replace(policy(team(limit_=1)), resources=BUILT_IN))
    place.set_device_class("gpu.nvidia.com", DeviceClass("gpu.nvidia.com", mentions_gpus=True))
    place.set_claim(ClaimKey("claim", "team-a", "two"), (DeviceRequest((ClassCount("gpu.nvidia.com", 2),)),))
    explanation = explain(pod(0, claims=(ClaimRef(claim="two"),)), ALICE, place)
    assert explanation.pod.demand.gpus == gpus(2)
    assert [limit.subject.text for limit in explanation.limits if limit.is_exceeded_by(gpus(2))] == ["team team-a"]
    assert explanation.smaller is None


def test_a_node_in_question_says_that_it_rejects_the_teams_pods():
    place = world(nodes=[node("n0"), node("n1")])
    place.tick(1_000)
    for number in range(STRIKES):
        rejection = Rejection(NodeName("n0"), Namespace("team-a"), Uid(f"u{number}"), 1_000, "OutOfnvidia.com/gpu")
        place.rejecting_nodes.note(rejection)
    [step] = explain(pod(1), ALICE, place, node=NodeName("n0")).pools
    assert step.node_step.obstacles == (
        "node n0 rejected the last 3 pods of team team-a (OutOfnvidia.com/gpu): it is tried again later, by one pod "
        "at a time",
    )
    [step] = explain(pod(1, namespace="team-b"), ALICE, place, node=NodeName("n0")).pools
    assert (step.node_step.obstacles, step.node_step.place) == ((), 2)
