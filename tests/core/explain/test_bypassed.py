"""The pods that hold GPUs without a decision of the webhook, and how that can be."""

from dataclasses import replace

from tests.core.support.make import node, policy, resident, world
from webhook.core.explain.pod_rows import bypassed_pods, bypassed_text
from webhook.core.explain.team_rows import board_of
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Enforcement


def past(name, count=1, *, created=0, handling=Handling.NODE_NAME, **more):
    made = resident(count, uid=name, name=name, node=more.pop("node", "n0"), created=created, **more)
    return made._replace(has_decision=False, handling=handling)


def test_pods_without_a_decision_are_listed_and_those_that_fairgate_never_places_come_last():
    pods = [
        past("daemon", handling=Handling.DAEMON_SET, tier=None),
        past("late", 2, created=9, tier=None),
        past("labeled", created=5),
        resident(1, uid="decided", name="decided", node="n0"),
        past("exempt", namespace="kept", tier=None),
    ]
    rules = policy(exempt_namespaces=("kept",))
    place = world(rules, [node("n0", gpus=16)], pods)
    found = bypassed_pods(place)
    assert [each.pod.name for each in found] == ["labeled", "late", "daemon"]
    assert {each.team for each in found} == {"team-a"}
    assert found[-1].why == "it is of a DaemonSet: counted only"
    want = "2 pods of 3 GPUs came without a decision of Fairgate: `fairgate bypassed` lists them"
    assert bypassed_text(found) == want
    assert board_of(place).bypassed == tuple(found)
    assert bypassed_text(found[-1:]) == ""
    assert bypassed_pods(place, sees=lambda namespace: namespace == "team-b") == []


def test_none_bypasses_a_policy_that_is_not_enforced():
    place = world(replace(policy(), enforce=Enforcement.SHADOW), [node("n0")], [past("p", tier=None)])
    assert bypassed_pods(place) == []
