"""Room under limits that is kept for waiting pods: borrowers do not get it, and no team keeps more than its share."""

from types import SimpleNamespace

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.force_deleted import delete_by_force
from tests.core.support.make import ALICE, flight, gpus, pod, policy, resident, team, world
from tests.core.support.outcomes import admitted, codes
from tests.core.support.waiting import waiting
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, Deny, Queue
from webhook.core.model.pod import Handling
from webhook.core.model.reasons import Code
from webhook.core.quota.shares import ENDED_SECONDS, KeptRoom


def kept(name="w", count=2, *, namespace="team-b", **more):
    return waiting(name, count, namespace=namespace, keeps_room=True, **more)


def place(*marked, held=(), limit=9, **more):
    """`left` has 9 GPUs for team-a and team-b, each guaranteed 4; team-a holds its share and one more."""
    tree = tree_policy(left=department("left", "top", guaranteed=8, limit_=limit), guaranteed=4, **more)
    made = world(tree, residents=[resident(4), resident(1, tier="preemptible"), *held])
    for each in marked:
        made.set_waiting(each)
    return made


def test_what_is_kept_is_at_most_what_the_team_has_left_of_its_share():
    room, usage = KeptRoom(), SimpleNamespace(guaranteed=0)
    room.set("b", 6, share=4, usage=usage)
    assert room.to_leave() == 4
    usage.guaranteed = 3
    assert room.to_leave() == 1
    usage.guaranteed = 5
    assert room.to_leave() == 0
    room.set("b", 0, share=4, usage=usage)
    assert (room.to_leave(), room.teams) == (0, {})


class TestBorrowers:
    def test_one_gets_the_room_that_is_left_besides(self):
        assert admitted(admit(pod(2), ALICE, place(kept())))
        assert codes(admit(pod(3), ALICE, place(kept()))) == [Code.DEPARTMENT_LIMIT_EXCEEDED]
        assert admitted(admit(pod(3), ALICE, place(waiting("w", 2, namespace="team-b"))))

    def test_the_refusal_names_the_room_that_is_kept(self):
        (reason,) = admit(pod(3), ALICE, place(kept())).reasons
        assert reason.text == (
            "department left: requested 3, limit 9, used 5, reserved 0, reserved for pods inside their guaranteed shares 2;"
            " largest holders: team team-a 5; a request of at most 2 would pass now"
        )

    def test_one_that_borrows_by_choice_is_a_borrower_inside_its_share_too(self):
        by_choice = pod(3, namespace="team-b", tier_label="preemptible")
        assert codes(admit(by_choice, ALICE, place(kept()))) == [Code.DEPARTMENT_LIMIT_EXCEEDED]

    def test_one_of_another_department_is_not_concerned(self):
        assert admitted(admit(pod(6, namespace="team-d"), ALICE, place(kept())))

    def test_one_below_the_same_top_leaves_the_room_there(self):
        tree = tree_policy(top=department("top", guaranteed=8, limit_=9), guaranteed=4)
        made = world(tree, residents=[resident(4), resident(1, tier="preemptible")])
        made.set_waiting(kept())
        assert codes(admit(pod(5, namespace="team-c"), ALICE, made)) == [Code.DEPARTMENT_LIMIT_EXCEEDED]
        assert admitted(admit(pod(4, namespace="team-c"), ALICE, made))


def test_pods_inside_their_shares_get_the_room():
    assert admitted(admit(pod(4, namespace="team-b"), ALICE, place(kept())))
    assert admitted(admit(pod(4, namespace="team-b"), ALICE, place(kept(count=4))))


class TestTheEnd:
    def test_nothing_is_kept_once_the_pod_started_is_gone_or_is_no_longer_marked(self):
        for end in (
            lambda made: made.remove_pod(kept().uid),
            lambda made: made.set_waiting(waiting("w", 2, namespace="team-b")),
            lambda made: made.set_waiting(kept(is_terminating=True)),
            lambda made: made.set_pod(resident(2, uid=kept().uid, namespace="team-b")),
        ):
            made = place(kept())
            end(made)
            assert made.usage("team-b").kept.to_leave() == 0
            assert all(level.kept.to_leave() == 0 for level in made.departments())

    def test_a_charged_pod_that_is_still_in_line_keeps_nothing_besides_its_charge(self):
        """The ledger may be seen before the pod without its gate: its room must not count twice."""
        made = place(kept())
        charged = flight(kept().pod, Charge(TeamName("team-b"), Tier.GUARANTEED, gpus(2)), "n0")
        made.assume(charged)
        made.set_waiting(kept())
        assert (made.usage("team-b").kept.to_leave(), made.usage("team-b").guaranteed) == (0, gpus(2))
        made.drop_reservation(charged.pod.uid)
        assert (made.usage("team-b").kept.to_leave(), made.usage("team-b").guaranteed) == (gpus(2), 0)

    def test_a_policy_edit_keeps_it_by_the_new_shares(self):
        made = place(kept(count=4))
        assert made.usage("team-b").kept.to_leave() == gpus(4)
        made.set_policy(tree_policy(left=department("left", "top", guaranteed=4, limit_=9), guaranteed=1))
        assert made.usage("team-b").kept.to_leave() == gpus(1)

    def test_a_team_without_departments_keeps_room_of_its_own_limit_against_its_own_borrowers(self):
        made = world(policy(team(guaranteed=4, limit_=5)), residents=[resident(3, tier="preemptible")])
        made.set_waiting(kept(namespace="team-a"))
        by_choice = pod(1, tier_label="preemptible")
        assert codes(admit(by_choice, ALICE, made)) == [Code.TEAM_LIMIT_EXCEEDED]
        assert admitted(admit(pod(2), ALICE, made))


def test_what_a_hostile_team_marks_beyond_its_share_keeps_nothing():
    marked = [kept(f"w{number}", 4) for number in range(10)]
    used = resident(4, namespace="team-b")
    assert place(*marked, held=[used]).usage("team-b").kept.to_leave() == 0


def test_a_mark_in_a_team_without_limits_keeps_nothing_from_its_borrowers():
    """Any user may write it on a pod that waits for another controller's gate."""
    made = world(policy(team(guaranteed=4, limit_=None)), residents=[resident(4)])
    made.set_waiting(kept(namespace="team-a"))
    for asked in (pod(1), pod(1, tier_label="preemptible")):
        assert admitted(admit(asked, ALICE, made))
    free = world(policy(team(guaranteed=4, limit_=None)), residents=[resident(1)])
    free.set_waiting(kept(namespace="team-a"))
    assert admitted(admit(pod(5), ALICE, free))


class TestWhatPodsDeletedByForceLeave:
    """`left` has 9 GPUs: 8 of them linger of team-a, which holds one; team-b is guaranteed 4 and holds nothing."""

    def place(self, *in_line):
        tree = tree_policy(left=department("left", "top", guaranteed=4, limit_=9), guaranteed=4)
        made = world(tree, residents=[resident(1)])
        self.left = delete_by_force(made, *(resident(1, node="n0", tier=None) for _ in range(8)))
        for each in in_line:
            made.set_waiting(each)
        return made

    def test_a_pod_inside_its_share_waits_for_it_as_for_borrowers(self):
        waits = admit(pod(4, namespace="team-b"), ALICE, self.place())
        assert isinstance(waits, Queue)
        assert waits.reason.text.startswith("waits: department left holds 9 of 9, 8 of them borrowed")
        assert codes(admit(pod(5, namespace="team-b"), ALICE, self.place())) == [Code.DEPARTMENT_LIMIT_EXCEEDED]

    def test_it_is_for_the_pods_in_line_and_not_for_the_next_that_borrows(self):
        made, by_choice = self.place(waiting("w", 4, namespace="team-b")), pod(1, tier_label="preemptible")
        for number, each in enumerate(self.left, start=1):
            made.drop_reservation(each.pod.uid)
            assert isinstance(admit(by_choice, ALICE, made), Admit) is (number > 4), f"{number} of 8 ended"
            assert isinstance(admit(pod(4, namespace="team-b"), ALICE, made), Admit) is (number >= 4)

    def test_without_such_pods_in_line_borrowers_get_it(self):
        for in_line in ((), (waiting("w", 4, namespace="team-b", is_terminating=True),)):
            made = self.place(*in_line)
            for uid in (each.pod.uid for each in in_line):
                made.remove_pod(uid)
            made.drop_reservation(self.left[0].pod.uid)
            assert admitted(admit(pod(1, tier_label="preemptible"), ALICE, made))

    def test_the_room_of_the_last_one_is_kept_until_the_line_was_looked_at(self):
        made, by_choice = self.place(waiting("w", 4, namespace="team-b")), pod(1, tier_label="preemptible")
        made.tick(100)
        made.set_pod(resident(4, uid="more", namespace="team-b", tier="preemptible"))
        for each in self.left:
            made.drop_reservation(each.pod.uid)
        assert codes(admit(by_choice, ALICE, made)) == [Code.DEPARTMENT_LIMIT_EXCEEDED], "it holds 5 of 9"
        made.tick(100 + ENDED_SECONDS)
        assert admitted(admit(by_choice, ALICE, made)), "the line has had its turn"

    @pytest.mark.parametrize(
        ("namespace", "more", "want"),
        [
            pytest.param("team-b", {}, Admit, id="managed, for its own team in the queue"),
            pytest.param("team-c", {}, Queue, id="managed, for another team in the queue"),
            pytest.param("team-b", {"handling": Handling.NODE_NAME, "node_name": "n0"}, Deny, id="past the line"),
        ],
    )
    def test_the_next_ones_inside_the_share_of_a_team_that_deletes_by_force_leave_it_too(self, namespace, more, want):
        """team-b deletes pods by force and is guaranteed 4; 5 of the 9 GPUs of `top` are left."""
        made = world(tree_policy(top=department("top", guaranteed=4, limit_=9), guaranteed=4))
        delete_by_force(made, *(resident(1, node="n0", namespace="team-b") for _ in range(4)))
        made.set_waiting(waiting("w", 4, namespace=namespace))
        asked = pod(2, namespace="team-b", **more)
        assert isinstance(admit(asked, ALICE, made), want)
