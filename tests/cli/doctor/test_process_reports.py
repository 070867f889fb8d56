"""What processes report of the cluster: nodes, autoscalers, minimums, targets of messages."""

from dataclasses import replace

import pytest

from tests.cli.doctor import stage
from tests.cli.doctor.stage import HEALTHY, POLICY, findings, process, replicas
from webhook.cli.doctor.checks import Check


def test_nodes_that_reject_pods_are_named_by_the_leader():
    text = "node gpu-0: the last 120 pods of team vision were rejected there (UnexpectedAdmissionError)"
    found = findings(**replicas(**{"pod-1_a": process(leading=True, rejecting=[text])}))
    [node] = [each for each in found if each.check == "nodes"]
    assert (node.state, node.message) == ("wrong", text)
    assert "cordon the node" in node.remedy


def test_nodes_in_maintenance_are_named_and_are_no_problem():
    found = findings(
        **replicas(**{"pod-1_a": process(leading=True, maintained=["gpu-0 (its driver is being upgraded)"])})
    )
    [node] = [each for each in found if each.check == "nodes"]
    assert node.state == "ok"
    assert node.message.endswith("; in maintenance: gpu-0 (its driver is being upgraded)")


def test_a_line_that_stands_still_is_wrong_and_named_by_the_leader():
    text = "the first queued pod, of team vision, may start now, and has not been released for 45 s"
    found = findings(**replicas(**{"pod-1_a": process(leading=True, stalled=text)}))
    [leader] = [each for each in found if each.check == "leader"]
    assert (leader.state, leader.message) == ("wrong", text)
    assert "docs/tasks/runbooks.md#fairgatequeuestalled" in leader.remedy


def test_without_a_leader_nodes_are_not_checked():
    assert [each for each in findings(**replicas(**{"pod-1_a": process()})) if each.check == "nodes"] == []


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"autoscaling": "Karpenter; pools that grow: a; others: none"}, [("ok", "Karpenter; pools that grow: a")]),
        ({"autoscaling": "x", "autoscaling_problems": ["pools a: no"]}, [("wrong", "pools a: no")]),
        (
            {"autoscaling": "x", "autoscaling_unsure": "forbidden"},
            [("unknown", "not all could be looked for: forbidden")],
        ),
        ({}, []),
    ],
    ids=["found", "policy says something else", "not allowed to look", "a leader of an older version"],
)
def test_the_leader_says_what_it_knows_of_autoscalers(said, want):
    found = findings(**replicas(**{"pod-1_a": process(leading=True, **said)}))
    checks = [each for each in found if each.check == "autoscalers"]
    assert [each.state for each in checks] == [state for state, _ in want]
    assert all(each.message.startswith(text) for each, (_, text) in zip(checks, want, strict=True))
    assert all(bool(each.remedy) == (each.state != "ok") for each in checks)


TOLD = "workloads: 3 with a minimum; 1 below it (vision 1)"


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({}, [("ok", "no workload has a minimum")]),
        ({"pod-1_a": process(leading=True, minimums=TOLD)}, [("ok", TOLD)]),
        (
            {"pod-2_d": process("evictor", left_out=["horizontalpodautoscalers"])},
            [
                (
                    "wrong",
                    "pod-2_d may not list horizontalpodautoscalers: of workloads that one scales, it knows no minimum",
                )
            ],
        ),
    ],
)
def test_each_process_is_to_read_what_states_minimums(more, want):
    found = [each for each in findings(**replicas(**more)) if each.check == Check.MINIMUMS]
    assert [(each.state, each.message) for each in found] == want
    assert [bool(each.remedy) for each in found] == [state == "wrong" for state, _ in want]


def test_the_leader_says_how_many_pods_have_no_decision_which_is_no_problem():
    said = "2 pods of 5 GPUs came without a decision of Fairgate: `fairgate bypassed` lists them"
    found = findings(**replicas(**{"pod-1_a": process(leading=True, bypassed=said), "pod-1_b": process()}))
    assert [(each.check, each.state) for each in found if each.message == said] == [(Check.WEBHOOKS, "ok")]


def test_each_process_is_to_read_what_says_where_there_is_room():
    blind = process("evictor", left_out=["persistentvolumes", "horizontalpodautoscalers"])
    found = [each for each in findings(**replicas(**{"pod-2_d": blind})) if each.check == Check.ROOM]
    assert [each.message for each in found if each.state == "wrong"] == [
        "pod-2_d may not list persistentvolumes: a pod may be sent to a zone where its volume is not"
    ]


NOTIFYING = stage.parse(
    {"p.yaml": stage.DOCUMENT + b"notify: {targets: [{name: on-call, url: 'https://h/'}]}"}, origin="p"
)


@pytest.mark.parametrize(
    ("policy", "said", "want"),
    [
        (POLICY, [], [("ok", "policy names no target of messages to people")]),
        (NOTIFYING, [], [("ok", "messages reach on-call")]),
        (NOTIFYING, ["target on-call: HTTP 401"], [("wrong", "target on-call: HTTP 401 (from pod-1_a)")]),
    ],
    ids=["no targets", "reached", "not reached"],
)
def test_targets_of_messages_are_checked_where_policy_has_some(policy, said, want):
    alive = replicas(**{"pod-1_a": process(leading=True, notify=said)})
    found = [each for each in findings(replace(HEALTHY, policy=policy), **alive) if each.check == "notify"]
    assert [(each.state, each.message) for each in found] == want
