"""One waiting pod on the present world."""

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import node, policy, pool, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.model.decision import Admit
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.queue.verdict import Fits, Never, NoRoom, OverLimit, Way
from webhook.core.release.judge import KEPT, judge_pod
from webhook.core.release.queue_view import TEAM, USER
from webhook.core.release.reclaimable import BorrowedRoom

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def judged(pod, place, **more):
    return judge_pod(pod, place, BorrowedRoom(place), **more)


@pytest.mark.parametrize(
    ("shares", "want"),
    [
        ({"limit_": 2, "guaranteed": 2}, OverLimit((TEAM, "team-a"))),
        ({"per_user": 0}, OverLimit((USER, "team-a", "alice"))),
        ({"per_pod": 0}, Never()),
    ],
    ids=["the team's limit", "the user's limit", "a limit per pod that was lowered"],
)
def test_the_limit_in_the_way_is_named(shares, want):
    place = world(policy(team(**LIMITED, **shares)), residents=[resident(2, node="n0")])
    assert judged(waiting("a", user="alice"), place).verdict == want


class TestKeptRoom:
    """Room under a department's limit that reclaim made for one pod."""

    def place(self):
        left = department("left", "top", guaranteed=8, limit_=9)
        made = world(tree_policy(left=left, guaranteed=4), residents=[resident(3), resident(5, tier="preemptible")])
        made.set_waiting(waiting("kept", 1, namespace="team-b", keeps_room=True))
        return made

    def test_the_pod_starts_and_back_fill_does_not_take_its_room(self):
        place = self.place()
        assert judged(waiting("kept", 1, namespace="team-b", keeps_room=True), place).verdict == Fits()
        behind = judged(waiting("behind", 1, namespace="team-b"), place, way=Way.BACKFILL)
        assert behind.verdict == OverLimit((KEPT, "team-b"))
        assert "1 kept for pods inside their guaranteed shares" in behind.text

    def test_a_borrower_is_not_blocked_by_a_limit_that_would_block_others(self):
        """Its verdict must not stand for pods of its size that do not borrow."""
        found = judged(waiting("borrower", 1, tier_label="preemptible"), self.place())
        assert found.verdict == OverLimit((KEPT, "team-a"))


def test_the_user_of_the_first_decision_is_charged():
    decision = judged(waiting("a", user="alice"), world()).decision
    assert isinstance(decision, Admit)
    assert decision.charge.user == "alice"


def test_a_pod_that_policy_refuses_now_holds_up_no_other():
    place = world(policy(team(**LIMITED), pools=(pool("a"),)))
    found = judged(waiting("a", pool="gone"), place)
    assert found.verdict == Never()
    assert found.text.startswith("waits: the pod is pinned to pool gone, which does not exist")


def test_back_fill_stays_off_the_kept_nodes():
    place = world(policy(team(**LIMITED)), nodes=[node("n0"), node("n1")])
    found = judged(waiting("a"), place, way=Way.BACKFILL, kept=frozenset({"n0"}))
    assert found.decision.node_choice.nodes == ("n1",)
    place.set_pod(resident(10, node="n1", namespace="team-b"))
    full = judged(waiting("a"), place, way=Way.BACKFILL, kept=frozenset({"n0"}))
    assert isinstance(full.verdict, NoRoom)
    assert full.text.endswith("1 node could hold it when free and open; room on 1 node is kept for pods ahead of it")


def test_a_pod_all_of_whose_nodes_are_kept_waits_for_room_and_its_selector_is_right():
    place = world(policy(team(**LIMITED)), nodes=[node("n0"), node("n1")])
    found = judged(waiting("a"), place, way=Way.BACKFILL, kept=frozenset({"n0", "n1"}))
    assert isinstance(found.verdict, NoRoom)
    assert found.text == "waits: no other node could hold it; room on 2 nodes is kept for pods ahead of it"
    lost = judged(waiting("lost", 11), place, way=Way.BACKFILL, kept=frozenset({"n0"}))
    assert lost.verdict == Never(), "it could not start there either"


def test_a_team_that_waits_in_kube_scheduler_starts_without_room():
    full = [resident(10, node="n0", namespace="team-b")]
    place = world(policy(team(on_limit=OnLimit.QUEUE), team("team-b")), nodes=[node()], residents=full)
    assert judged(waiting("a"), place).verdict == Fits()
    assert isinstance(judged(waiting("a"), place, way=Way.BACKFILL).verdict, NoRoom)
