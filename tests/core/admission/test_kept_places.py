"""The place that a node keeps for a pod: it goes there, also past its line, and no other pod does."""

import pytest

from tests.core.support.make import ALICE, JOB_CONTROLLER, demand, mutated, node, pod, policy, team, world
from tests.core.support.outcomes import admitted
from tests.core.support.waiting import waiting
from webhook.core.admission.admission import admit
from webhook.core.admission.node_choice import own_place
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.model.constraints import HELD, Effect, Taint
from webhook.core.model.node import KeptPlace, controller_key
from webhook.core.model.pod import Owner
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.model.reasons import Code

TAINT = Taint(HELD, Effect.NO_SCHEDULE, "h1")
OWNER = Owner("Job", "train")


def kept(key, *, count=1, **more):
    return KeptPlace(key, "team-a/train-0", TeamName("team-a"), demand(count, **more).requests, Uid("gone"))


def cluster(*places, taken=0):
    held = node("n0", gpus=4, taints=(TAINT,), kept=places)
    made = world(nodes=[held, node("n1", gpus=4)])
    if taken:
        made.fleet.take(NodeName("n0"), demand(taken))
    return made


def chosen(found, **more):
    return admitted(admit(pod(1, owner=OWNER, **more), JOB_CONTROLLER, found)).node_choice.nodes


def test_the_next_pod_of_the_controller_goes_to_its_place_and_nowhere_else():
    assert chosen(cluster(kept(controller_key("Job", "team-a", "train")))) == ("n0",)


@pytest.mark.parametrize(
    "key",
    [controller_key("Job", "team-b", "train"), controller_key("Job", "team-a", "other"), "", "uid-of-another"],
    ids=["another namespace", "another Job", "no pod", "a queued pod"],
)
def test_any_other_pod_goes_elsewhere(key):
    assert chosen(cluster(kept(key))) == ("n1",)


def test_a_larger_pod_than_the_one_that_moved_goes_elsewhere():
    assert chosen(cluster(kept(controller_key("Job", "team-a", "train"))), demand=demand(2)) == ("n1",)
    assert chosen(cluster(kept(controller_key("Job", "team-a", "train"))), demand=demand(1, cpu=7000)) == ("n1",)


def test_a_place_whose_room_is_taken_is_none():
    assert chosen(cluster(kept(controller_key("Job", "team-a", "train")), taken=4)) == ("n1",)


def test_a_pod_in_line_has_its_place_by_its_uid():
    there = cluster(kept("waits"))
    assert own_place(pod(1, uid=Uid("waits")), there).slot == there.fleet.bit(NodeName("n0"))
    assert own_place(pod(1, uid=Uid("other")), there) is None
    assert own_place(pod(1), cluster(kept(""))) is None


def test_a_node_that_no_longer_keeps_a_place_takes_its_pod_like_any_other():
    there = cluster(kept(controller_key("Job", "team-a", "train")))
    there.set_node(node("n0", gpus=4))
    assert not there.keeping
    assert set(chosen(there)) == {"n0", "n1"}
    there.set_node(node("n0", gpus=4, taints=(TAINT,), kept=(kept("x"),)))
    there.remove_node(NodeName("n0"))
    assert not there.keeping


def test_what_was_decided_is_confirmed_at_the_commit():
    there = cluster(kept(controller_key("Job", "team-a", "train")))
    asked = pod(1, owner=OWNER)
    stored = mutated(asked, admitted(admit(asked, JOB_CONTROLLER, there)))
    assert admitted(verify(stored, JOB_CONTROLLER, there)).node_choice.nodes == ("n0",)


def test_a_pod_with_a_place_waits_for_no_other_of_its_team():
    there = cluster(kept(controller_key("Job", "team-a", "train")))
    there.set_policy(policy(team(on_limit=OnLimit.QUEUE, on_no_room=OnNoRoom.QUEUE)))
    there.set_waiting(waiting("first", 4))
    assert chosen(there) == ("n0",)
    assert admit(pod(1), JOB_CONTROLLER, there).reason.code is Code.WAITS_IN_LINE


def test_a_team_with_a_share_of_its_own_model_keeps_its_tier_there():
    there = world(
        policy(team(guaranteed=1)),
        nodes=[
            node("n0", gpus=4, taints=(TAINT,), kept=(kept(controller_key("Job", "team-a", "train")),)),
            node("n1", gpus=4),
        ],
    )
    decision = admitted(admit(pod(1, owner=OWNER), ALICE, there))
    assert (decision.charge.tier.value, decision.node_choice.nodes) == ("guaranteed", ("n0",))
