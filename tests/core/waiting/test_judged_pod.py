"""One waiting pod on the present world."""

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import GPU, node, policy, pool, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.line.entries import Attempt, Fits, Never, NoRoom, OverLimit, Way
from webhook.core.line.judged_pod import KEPT, BorrowedRoom, judge_pod
from webhook.core.line.line import TEAM, USER
from webhook.core.model.decision import Admit
from webhook.core.model.policy import Mode, OnLimit, OnNoRoom, PlacementRules

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def judged(pod, place, *, is_member=False, **more):
    return judge_pod(pod, place, BorrowedRoom(place), Attempt(**more), is_member=is_member)


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
        assert "1 reserved for pods inside their guaranteed shares" in behind.reason.text

    def test_a_borrower_is_not_blocked_by_a_limit_that_would_block_others(self):
        """Its verdict must not stand for pods of its size that do not borrow."""
        found = judged(waiting("borrower", 1, tier_label="preemptible"), self.place())
        assert found.verdict == OverLimit((KEPT, "team-a"))


def full_of_borrowers(*teams, **more):
    borrowers = [resident(1, uid=f"b{n}", node="n0", namespace="team-b", tier="preemptible") for n in range(8)]
    teams = teams or (team(guaranteed=8, limit_=None, **LIMITED), team("team-b"))
    return world(policy(*teams, **more), nodes=[node("n0", gpus=8)], residents=borrowers)


class TestWhoMayKeepItsGate:
    """Of the pods that start on room that reclaim is to make."""

    def test_a_pod_that_reclaim_makes_room_for_on_one_node(self):
        found = judged(waiting("a"), full_of_borrowers())
        assert (found.takes_back, found.may_await_room, found.flight.node) == (True, True, "n0")

    def test_nothing_is_taken_back_where_its_room_is_there(self):
        place = full_of_borrowers()
        place.remove_pod("b0")
        assert not judged(waiting("a"), place).takes_back

    def test_none_where_no_node_is_chosen(self):
        placement = PlacementRules(mode=Mode.OFF)
        found = judged(waiting("a"), full_of_borrowers(placement=placement))
        assert (found.takes_back, found.may_await_room) == (True, False)

    def test_of_a_pod_that_does_not_start_there_is_no_charge(self):
        place = world(policy(team(**LIMITED, limit_=0, guaranteed=0)))
        found = judged(waiting("a"), place)
        assert not found.may_await_room
        with pytest.raises(TypeError, match="no charge"):
            _ = found.flight


def test_a_pod_judged_again_stays_with_its_node_while_that_can_hold_it():
    nodes = [node("n0", gpus=2), node("n1", gpus=2)]
    borrowers = [resident(1, uid=f"b{n}", node=f"n{n % 2}", namespace="team-b", tier="preemptible") for n in range(4)]
    teams = (team(guaranteed=8, limit_=None, **LIMITED), team("team-b"))
    place = world(policy(*teams), nodes=nodes, residents=borrowers)

    def chosen():
        return judge_pod(waiting("a"), place, BorrowedRoom(place, first="n1")).decision.node_choice.nodes

    assert judged(waiting("a"), place).decision.node_choice.nodes == ("n0",)
    assert chosen() == ("n1",)
    for name in ("b1", "b3"):
        place.remove_pod(name)
    for number in range(2):
        place.set_pod(resident(1, uid=f"g{number}", node="n1", namespace="team-b"))
    assert chosen() == ("n0",)


def test_the_user_of_the_first_decision_is_charged():
    decision = judged(waiting("a", user="alice"), world()).decision
    assert isinstance(decision, Admit)
    assert decision.charge.user == "alice"


def test_a_pod_that_policy_refuses_now_holds_up_no_other():
    place = world(policy(team(**LIMITED), pools=(pool("a"),)))
    found = judged(waiting("a", pool="gone"), place)
    assert found.verdict == Never()
    assert found.reason.text.startswith("the pod is pinned to pool gone, which does not exist")


def test_back_fill_stays_off_the_kept_nodes():
    place = world(policy(team(**LIMITED)), nodes=[node("n0"), node("n1")])
    found = judged(waiting("a"), place, way=Way.BACKFILL, kept=frozenset({"n0"}))
    assert found.decision.node_choice.nodes == ("n1",)
    place.set_pod(resident(10, node="n1", namespace="team-b"))
    full = judged(waiting("a"), place, way=Way.BACKFILL, kept=frozenset({"n0"}))
    assert isinstance(full.verdict, NoRoom)
    assert full.reason.text.endswith(
        "it fits on 1 node once empty and open; room on 1 node is reserved for pods ahead of it"
    )


def test_a_pod_all_of_whose_nodes_are_kept_waits_for_room_and_its_selector_is_right():
    place = world(policy(team(**LIMITED)), nodes=[node("n0"), node("n1")])
    found = judged(waiting("a"), place, way=Way.BACKFILL, kept=frozenset({"n0", "n1"}))
    assert isinstance(found.verdict, NoRoom)
    assert found.reason.text == "no other node could hold it; room on 2 nodes is reserved for pods ahead of it"
    lost = judged(waiting("lost", 11), place, way=Way.BACKFILL, kept=frozenset({"n0"}))
    assert lost.verdict == Never(), "it could not start there either"


def test_a_team_that_waits_in_kube_scheduler_starts_without_room():
    full = [resident(10, node="n0", namespace="team-b")]
    place = world(policy(team(on_limit=OnLimit.QUEUE), team("team-b")), nodes=[node()], residents=full)
    assert judged(waiting("a"), place).verdict == Fits()
    assert isinstance(judged(waiting("a"), place, way=Way.BACKFILL).verdict, NoRoom)


class TestRoomThatNoPodHas:
    """Pods that pass the mutating step may never be created, and a tenant may send them without end."""

    def place(self, **more):
        place = world(policy(team(**LIMITED), team("team-b")), nodes=[node("n0", gpus=4)], **more)
        place.tentative.reserve(place.fleet, "n0", waiting("m", 2, namespace="team-b").pod, now=0)
        return place

    def test_a_tentative_reservation_keeps_no_pod_in_line(self):
        assert judged(waiting("a", 4), self.place()).verdict == Fits()

    def test_nothing_is_taken_back_for_room_that_is_only_reserved(self):
        found = judged(waiting("a", 3), self.place(residents=[resident(1, node="n0", tier="preemptible")]))
        assert (found.verdict, found.takes_back) == (Fits(), False)

    def test_it_stays_where_the_pod_needs_none_of_its_room(self):
        place = self.place()
        assert judged(waiting("a", 2), place).verdict == Fits()
        assert place.fleet.free("n0", GPU) == 2

    def test_a_promise_to_a_borrower_keeps_no_share_but_is_taken_back(self):
        place = world(policy(team(**LIMITED), team("team-b")), nodes=[node("n0", gpus=4)])
        place.tick(100)
        place.set_pod(resident(4, namespace="team-b", tier="preemptible", promised="n0"))
        found = judged(waiting("a", 4), place)
        assert (found.verdict, found.takes_back) == (Fits(), True)
        assert judged(waiting("b", 4, tier_label="preemptible"), place).verdict != Fits(), "who borrows waits its end"
