"""Idle guaranteed pods become preemptible while others wait, and guaranteed again once they use their GPUs."""

import pytest

from tests.addons.idle.made import rules
from tests.core.support import make
from tests.core.support.waiting import waiting
from webhook.core.model.amounts import TeamName
from webhook.core.tiers.tier_changes import idle_to_demote, tier_changes

A = TeamName("team-a")


def made(*residents, actions=("demote",), waits=True):
    world = make.world(make.policy(idle=rules(*actions)), residents=list(residents))
    if waits:
        world.set_pod(make.resident(2, uid="waits", namespace="team-b"))
    return world


def holder(uid="a", *, idle=1, tier="guaranteed", **more):
    return make.resident(2, uid=uid, tier=tier, node="n0", idle_since=idle, **more)


def changed(world):
    found = tier_changes(world.policy.team(A), world)
    return {change.pod.uid: (str(change.charge.tier), change.is_idle) for change in found}


def test_an_idle_guaranteed_pod_is_demoted_while_another_waits():
    world = made(holder(), holder("busy", idle=0))
    assert changed(world) == {"a": ("preemptible", True)}
    (change,) = tier_changes(world.policy.team(A), world)
    assert change.message.text.startswith("now preemptible: its 2 GPUs have not been used, and other pods wait")


@pytest.mark.parametrize(
    "world",
    [
        made(holder(), waits=False),
        made(holder(), actions=("report", "prefer", "evict")),
        made(holder(idle=0)),
        made(holder(is_terminating=True)),
    ],
    ids=["no pod waits", "policy does not demote", "it is used", "it ends"],
)
def test_other_pods_stay_guaranteed(world):
    assert changed(world) == {}


def test_a_pod_in_line_waits_too():
    world = made(holder(), waits=False)
    world.set_waiting(waiting("q", namespace="team-b"))
    assert idle_to_demote(world.policy.team(A), world.usage(A), world) == {"a"}


@pytest.mark.parametrize(("idle", "want"), [(1, {}), (0, {"a": ("guaranteed", False)})], ids=["idle", "used again"])
def test_a_demoted_pod_is_guaranteed_again_once_it_is_used(idle, want):
    assert changed(made(holder(tier="preemptible", idle=idle), waits=False)) == want
