"""Who does not use their GPUs, in words and by team."""

import pytest

from tests.addons.idle.made import rules
from tests.core.support import make
from webhook.core.explain.pod_rows import idle_pods, idle_text
from webhook.core.explain.team_rows import board_of


def world_of(*residents, of=None):
    return make.world(make.policy(idle=of or rules("prefer", "demote")), residents=list(residents))


def holder(name, count=1, **more):
    return make.resident(count, uid=name, **{"node": "n0", "idle_since": 60} | more)


def test_the_pods_of_each_team_those_that_hold_most_first():
    world = world_of(holder("a"), holder("b", 3), holder("busy", idle_since=0), holder("c", 2, namespace="team-b"))
    found = list(idle_pods(world))
    assert [(each.team, [pod.uid for pod in each.pods]) for each in found] == [
        ("team-a", ["b", "a"]),
        ("team-b", ["c"]),
    ]
    assert found[0].text == "2 pods of team team-a do not use 4 GPUs: team-a/b, team-a/a"
    assert found[1].text == "1 pod of team team-b does not use 2 GPUs: team-b/c"
    assert [(row.name, row.idle) for row in board_of(world).teams] == [
        ("team-a", make.gpus(4)),
        ("team-b", make.gpus(2)),
    ]


def test_a_pod_that_uses_its_gpus_again_or_is_gone_is_not_listed():
    world = world_of(holder("a"), holder("b"), holder("c"))
    world.set_pod(holder("a", idle_since=0))
    world.remove_pod("b")
    world.set_pod(holder("c", is_terminating=True))
    assert list(idle_pods(world)) == []


def test_without_rules_marks_mean_nothing():
    world = make.world(residents=[holder("a")])
    assert list(idle_pods(world)) == []
    assert idle_text(holder("a"), world.policy) == ""


@pytest.mark.parametrize(
    ("tier", "want"),
    [
        ("guaranteed", "; it becomes preemptible while other pods wait"),
        ("preemptible", "; it is evicted before borrowing pods that use theirs"),
    ],
)
def test_a_text_says_what_may_follow(tier, want):
    pod = holder("a", tier=tier)
    assert idle_text(pod, world_of().policy) == f"its GPUs have not been used since 1970-01-01T00:01:00Z{want}"
    assert idle_text(pod._replace(idle_since=0), world_of().policy) == ""
    assert idle_text(pod, world_of(of=rules("evict")).policy).endswith("; it is evicted after a notice")
