"""Gangs of workloads that do not exist: what starts together, what comes later, and why all of them wait."""

import pytest
import yaml

from tests.cases.test_cases import node, pod
from tests.core.support.make import resident
from webhook.core.line.gang_plans import GangPlan
from webhook.core.model.amounts import Namespace, Uid
from webhook.core.model.constraints import MAX_MEMBERS
from webhook.core.model.decision import Admit
from webhook.core.model.pod import CONTROLLER
from webhook.core.model.reasons import Code
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.admission.templates import read_template
from webhook.kube.admission.trial_pods import GangRole, Simulator, judge_whole, waiting_members, waits_for_gang
from webhook.kube.world_file.world_file import fill_world
from webhook.policy.watch import load

TEAM = {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": 40}, "onLimit": "queue"}
GANG = {"kueue.x-k8s.io/pod-group-name": "g"}
SIZE = "kueue.x-k8s.io/pod-group-total-count"


@pytest.fixture
def simulator(tmp_path):
    head = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy", "teams": [TEAM]}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(head))
    world = World(load(tmp_path))
    listed = {"apiVersion": "v1", "kind": "List", "items": [node(f"n{number}", {}) for number in range(3)]}
    fill_world(world, yaml.safe_dump(listed), name="case")
    return Simulator(world, now_text="2026-01-01T00:00:00Z")


def role(simulator, number, *, gpus=10, **annotations):
    made = pod({"gpus": gpus, "metadata": {"labels": GANG, "annotations": annotations}})
    template = read_template(made, namespace=Namespace("team-a"), world=simulator.world)
    [answer] = simulator.simulate(template, number, requester=CONTROLLER)
    assert waits_for_gang(answer) is not None
    return GangRole(template, number, answer)


def outcomes(whole):
    return [
        [each.decision.charge.tier if isinstance(each.decision, Admit) else each.decision.reason.text for each in of]
        for of in whole.answers
    ]


def test_all_pods_start_together_and_are_charged(simulator):
    whole = judge_whole([role(simulator, 1), role(simulator, 2)], GangPlan(), simulator)
    assert outcomes(whole) == [["guaranteed"], ["guaranteed", "preemptible"]]
    assert whole.later == [0, 0]
    assert sorted(each.node for of in whole.answers for each in of) == ["n0", "n1", "n2"]
    assert simulator.world.usage("a").total == simulator.world.policy.teams[0].gpus.guaranteed * 3 // 2
    assert len(simulator.created) == 3
    assert not len(simulator.world.waiting)


def test_those_beyond_the_least_come_later_and_a_size_that_is_declared_counts(simulator):
    declared = role(simulator, 2, **{SIZE: "3"})
    assert judge_whole([declared], GangPlan(), simulator) is None, "more are to come from elsewhere"
    assert judge_whole([role(simulator, 3)], GangPlan(size=2), simulator).later == [1]


def test_where_one_finds_no_room_all_wait_and_nothing_changes(simulator):
    simulator.world.set_pod(resident(1, node="n0"))
    whole = judge_whole([role(simulator, 1), role(simulator, 2)], GangPlan(), simulator)
    (first,), (second,) = outcomes(whole)
    assert first == second
    assert first.startswith("waits: gang g starts whole, with 3 pods; for ")
    assert simulator.created == []
    assert not len(simulator.world.waiting)


def test_what_the_nodes_never_hold_waits_as_at_the_webhook_and_is_refused_where_its_size_is_declared(simulator):
    never = "gang g has 4 pods, and the nodes that they may use hold 3 of them when empty: it can never start whole"
    [[text]] = outcomes(judge_whole([role(simulator, 4)], GangPlan(), simulator))
    assert text == f"waits: {never}; make it smaller"
    whole = judge_whole([role(simulator, 4, **{SIZE: "4"})], GangPlan(), simulator)
    [[answer]] = whole.answers
    assert (answer.count, [reason.code for reason in answer.decision.reasons]) == (4, [Code.NEVER_FITS])
    assert simulator.created == []


def test_what_is_over_the_limit_or_too_many_can_never_start(simulator):
    [[text]] = outcomes(judge_whole([role(simulator, 5)], GangPlan(), simulator))
    assert "needs 50 GPUs together, and the limit of team a is 40: it can never start whole" in text
    [[text]] = outcomes(judge_whole([role(simulator, MAX_MEMBERS + 1, gpus=1)], GangPlan(), simulator))
    assert "at most 500 start together" in text


def test_it_waits_behind_pods_of_its_team(simulator):
    made = role(simulator, 1)
    ahead = made.template.pod._replace(uid=Uid("u"), gang=None)
    simulator.world.set_waiting(WaitingPod(ahead, "a"))
    assert outcomes(judge_whole([made], GangPlan(), simulator)) == [["waits: pods of team a wait ahead of gang g"]]


def test_no_more_members_are_made_than_may_start(simulator):
    assert len(waiting_members([role(simulator, 10**6, gpus=1)], simulator)) == MAX_MEMBERS
