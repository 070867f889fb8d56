"""Patches, case by case: the fields that are written and those that are not changed."""

import json
from dataclasses import replace

import pytest

from tests import builders as b
from tests.core.support.make import decision_annotation_of
from tests.kube.conftest import admit_of
from tests.kube.support.patching import (
    NOW,
    PREFERRED,
    REQUIRED,
    expression,
    named,
    node_affinity,
    patch_of,
    patched,
    with_terms,
)
from webhook.core.model import decision as decision_annotation
from webhook.core.model.amounts import GpuModel, ResourceName, Uid, User
from webhook.core.model.constraints import (
    Constraints,
    DomainPlace,
    Effect,
    NodeTerm,
    Operator,
    Requirement,
    Tier,
    Toleration,
)
from webhook.core.model.decision import NodeChoice
from webhook.core.model.pod import PriorityTriple
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code, Reason

TWO = NodeChoice(Mode.AUTO, ("node-1", "node-2"))


def test_a_pod_without_any_fields_gets_all_of_them():
    node_choice = NodeChoice(
        Mode.AUTO,
        ("node-1", "node-2"),
        pool="a100",
        node_selector=(("nvidia.com/gpu.product", b.A100),),
        pool_terms=((Requirement("nvidia.com/gpu.memory", Operator.GT, ("75000",)),),),
        tolerations=(Toleration(b.GPU, exists=True, effect=Effect.NO_SCHEDULE),),
    )
    pod = patched(b.pod(), admit_of(node_choice, priority=PriorityTriple("high", 7)))
    memory = expression("nvidia.com/gpu.memory", "Gt", "75000")
    assert pod["metadata"]["labels"] == {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    assert json.loads(pod["metadata"]["annotations"]["fairgate.dev/decision"]) == {
        "demand": {b.GPU: "2"},
        "gpus": "2",
        "mode": "auto",
        "nodes": [],
        "listed": 2,
        "code": "WithinShare",
        "policy": "5eed",
        "pool": "a100",
        "user": "alice@example.com",
        "of": "vision/train-0",
        "at": NOW,
    }
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": b.A100}
    assert pod["spec"]["tolerations"] == [{"key": b.GPU, "operator": "Exists", "effect": "NoSchedule"}]
    assert node_affinity(pod) == {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchExpressions": [memory], "matchFields": [named("node-1")]},
                {"matchExpressions": [memory], "matchFields": [named("node-2")]},
            ]
        },
        PREFERRED: [
            {"weight": 100, "preference": {"matchFields": [named("node-1")]}},
            {"weight": 6, "preference": {"matchFields": [named("node-2")]}},
        ],
    }
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (
        "high",
        7,
        "PreemptLowerPriority",
    )


def test_pods_that_differ_in_one_thing_never_get_the_text_of_another_decision():
    admitted = admit_of(TWO)
    charge, demand = admitted.charge, admitted.demand
    others = [
        admitted._replace(charge=charge._replace(user=User("bob@example.com"))),
        admitted._replace(charge=charge._replace(gpus=charge.gpus // 2)),
        admitted._replace(charge=charge._replace(model=GpuModel(b.A100))),
        admitted._replace(demand=replace(demand, devices=((ResourceName(b.GPU), 1),))),
        admitted._replace(demand=replace(demand, claims=(Uid("claim-1"),))),
        admitted._replace(demand=replace(demand, claims=(Uid("claim-2"),))),
        admitted._replace(node_choice=TWO._replace(nodes=("node-1",))),
        admitted._replace(node_choice=TWO._replace(mode=Mode.PREFER)),
        admitted._replace(node_choice=TWO._replace(mode=Mode.PREFER, nodes=("node-2", "node-1"))),
        admitted._replace(node_choice=TWO._replace(pool="a100")),
        admitted._replace(node_choice=TWO._replace(domain=DomainPlace("rack-7", (), why="charged there"))),
        admitted._replace(reason=Reason(Code.BORROWS, "")),
        admitted._replace(policy_hash="0dd"),
        admitted._replace(requested_tier=Tier.GUARANTEED),
    ]
    texts = [patched(b.pod(), each)["metadata"]["annotations"]["fairgate.dev/decision"] for each in (admitted, *others)]
    assert len(set(texts)) == len(texts)


def test_the_core_reads_the_decision_back():
    admit = admit_of(NodeChoice(Mode.REQUIRE, ("node-1",), pool="a100"))
    written = patched(b.pod(), admit)["metadata"]["annotations"]["fairgate.dev/decision"]
    named_there = Constraints(terms=(NodeTerm((), (Requirement("metadata.name", Operator.IN, ("node-1",)),)),))
    read = decision_annotation.read(written, named_there)
    assert read.listed == 1
    assert read._replace(listed=0) == decision_annotation.read(decision_annotation_of(admit, at=NOW))


@pytest.mark.parametrize(
    ("manifest", "node_choice", "is_repeated"),
    [
        pytest.param(b.pod(), NodeChoice(Mode.REQUIRE, ("node-1",)), False, id="one node"),
        pytest.param(b.pod(), NodeChoice(Mode.AUTO, ()), True, id="no node"),
        pytest.param(b.pod(), NodeChoice(Mode.PREFER, ("node-1",)), True, id="preferred nodes"),
        pytest.param(with_terms({"matchExpressions": [expression("zone", "In", "a")]}), TWO, False, id="own terms"),
        pytest.param(with_terms({"matchFields": [named("node-2")]}), TWO, True, id="own node"),
        pytest.param(with_terms({"matchFields": [named("elsewhere")]}), TWO, True, id="own node, not a chosen one"),
        pytest.param(with_terms({}), TWO, True, id="terms that match no node"),
    ],
)
def test_the_annotation_repeats_the_nodes_only_where_the_affinity_does_not_name_exactly_them(
    manifest, node_choice, is_repeated
):
    pod = patched(manifest, admit_of(node_choice))
    decision = json.loads(pod["metadata"]["annotations"]["fairgate.dev/decision"])
    assert (decision["nodes"], decision.get("listed", 0)) == (
        (list(node_choice.nodes), 0) if is_repeated else ([], len(node_choice.nodes))
    )
    assert b.decision_of(pod)["nodes"] == list(node_choice.nodes)


def test_the_domain_of_the_gang_and_the_reason_for_it_are_in_the_decision():
    place = DomainPlace("rack=a", (Requirement("rack", Operator.IN, ("a",)),), is_required=True, why="the only one")
    pod = patched(b.pod(), admit_of(NodeChoice(Mode.AUTO, ("node-1",), domain=place)))
    text = pod["metadata"]["annotations"]["fairgate.dev/decision"]
    read = decision_annotation.read(text)
    assert (read.domain, read.why) == ("rack=a", "the only one")
    elsewhere = patched(b.pod(), admit_of(NodeChoice(Mode.AUTO, ("node-1",), domain=DomainPlace("", (), why="small"))))
    assert b.decision_of(elsewhere)["why"] == "small"
    assert "domain" not in b.decision_of(elsewhere)
    assert "why" not in b.decision_of(patched(b.pod(), admit_of()))


def test_the_requested_tier_is_replaced_by_the_outcome():
    pod = patched(b.pod(labels={"fairgate.dev/tier": "guaranteed"}), admit_of(tier=Tier.PREEMPTIBLE))
    assert pod["metadata"]["labels"]["fairgate.dev/tier"] == "preemptible"


def test_the_users_node_selector_takes_precedence():
    node_choice = NodeChoice(Mode.OFF, node_selector=(("disk", "ssd"), ("a~b/c", "d")))
    pod = patched(b.pod(nodeSelector={"disk": "hdd"}), admit_of(node_choice))
    assert pod["spec"]["nodeSelector"] == {"disk": "hdd", "a~b/c": "d"}


def test_only_differing_priority_fields_are_written():
    manifest = b.pod(priorityClassName="high", priority=0, preemptionPolicy="PreemptLowerPriority")
    paths = [op["path"] for op in patch_of(manifest, admit_of(priority=PriorityTriple("high", 7)))]
    assert [path for path in paths if "riority" in path] == ["/spec/priority"]
