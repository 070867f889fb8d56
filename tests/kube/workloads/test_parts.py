"""A workload's pod sets, judged together by the core."""

from dataclasses import replace

import msgspec
import pytest

from tests import builders as b
from tests.core.support.make import node, policy, team, world
from webhook.core.model.pod import Requester
from webhook.core.model.policy import BUILT_IN_RESOURCES, JobEvictions, WorkloadRules
from webhook.kube.kinds.model import Budget, EvictionEffect, PodSet, Workload
from webhook.kube.pod.pods import InvalidPod
from webhook.kube.workloads.expand import NOT_JUDGED, judge, to_part

ALICE = Requester("alice@example.com")
POLICY = policy(team(guaranteed=2, limit_=4))


def pods(count, each=1, *, role="worker"):
    return PodSet(role, count, b.pod(namespace="team-a", gpus=each))


def workload(*sets, **more):
    return Workload("example.com/v1", "Run", "team-a", "train", sets, **more)


def codes(of, policy_=POLICY):
    return [reason.code for reason in judge(of, ALICE, world(policy_, nodes=[node(gpus=8)]), Budget())]


def test_a_pod_set_becomes_one_pod_and_its_number():
    part = to_part(pods(3, 2), namespace="team-a", weights=BUILT_IN_RESOURCES, budget=Budget())
    assert (part.role, part.count, part.pod.namespace) == ("worker", 3, "team-a")


@pytest.mark.parametrize("template", [{"metadata": {}}, {"spec": {"containers": 3}}, {"metadata": {}, "spec": {1, 2}}])
def test_a_malformed_template_is_an_invalid_pod(template):
    found = to_part(PodSet("", 1, template), namespace="team-a", weights=BUILT_IN_RESOURCES, budget=Budget())
    assert isinstance(found, InvalidPod)
    assert found.problems


def test_pods_of_one_time_are_added_and_those_of_several_are_not():
    assert codes(workload(pods(2), pods(3, role="head"))) == ["TeamLimitExceeded"]
    assert codes(workload(pods(2), pods(3, role="head"), is_at_most=True)) == []
    assert codes(workload(pods(9, 2), pods(1, 5, role="head"), is_at_most=True)) == ["TeamLimitExceeded"]


def test_a_reason_is_given_once():
    large = pods(1, 5)
    assert codes(workload(large, large, is_at_most=True)) == ["TeamLimitExceeded"]


def test_pods_that_are_not_known_are_left_out():
    assert codes(workload(PodSet("", None, {}, "it has no pod template"))) == []


def test_evictions_that_the_rule_covers_are_no_reason():
    fails = EvictionEffect(without_rule="it fails with its first evicted pod")
    counted = replace(POLICY, workloads=WorkloadRules(job_evictions=JobEvictions.COUNT))
    assert codes(workload(pods(3), evictions=fails)) == []
    assert len(codes(workload(pods(3), evictions=fails), counted)) == 1
    assert len(codes(workload(pods(3), evictions=EvictionEffect(always="its launcher fails")))) == 1
    assert codes(workload(pods(2), evictions=fails), counted) == [], "all of it is guaranteed"


def test_templates_that_are_together_too_large_are_not_judged():
    several = Workload("v1", "Job", "team-a", "it", (pods(3, 2), pods(3, 2)))
    length = len(msgspec.json.encode(pods(3, 2).template))
    with_nodes = world(policy(team()), nodes=[node(gpus=8)])
    assert judge(several, ALICE, with_nodes, Budget(max_bytes=2 * length)) != (NOT_JUDGED,)
    assert judge(several, ALICE, with_nodes, Budget(max_bytes=2 * length - 1)) == (NOT_JUDGED,)
    assert judge(several, ALICE, with_nodes, Budget(steps=900)) == (NOT_JUDGED,)
