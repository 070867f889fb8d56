"""Releases on a world: who starts, what is charged, and what happens when the world changed before the charge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.line import LIMITED, due, place_for
from tests.core.support.make import flight, gpus, node, pod, policy, requirement, resident, team, world
from tests.core.support.rejecting import started
from tests.core.support.waiting import member, waiting
from tests.examples import examples
from webhook.core.line.entries import NoRoom, OverLimit, Way
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, Retry
from webhook.core.model.policy import Enforcement, LabelSelector, Mode, PlacementRules, QueueRules
from webhook.core.model.reasons import Code
from webhook.core.model.topology import SpreadRule
from webhook.core.placement.rejecting_nodes import FIRST_SECONDS, STRIKES, Rejection
from webhook.core.starting.awaited_room import MOST
from webhook.core.starting.starts import AssumedStarts

NOW = 1_000_000


class TestTurns:
    def test_pods_start_while_the_limit_has_room_and_are_charged_in_the_world_at_once(self):
        place = place_for(team(guaranteed=2, limit_=2, **LIMITED))
        for number in range(3):
            place.set_waiting(waiting(f"p{number}", created=number))
        assert due(place) == ["p0", "p1"]
        assert place.usage("team-a").total == gpus(2)

    def test_what_is_charged_already_is_no_turn_again(self):
        place = place_for()
        place.set_waiting(waiting("a"))
        starts = AssumedStarts(place)
        assert due(place, starts=starts) == ["a"]
        starts.entries.put_back("uid-a")
        assert due(place, starts=starts) == []

    def test_a_pod_has_no_second_turn_until_its_release_is_over(self):
        """After a lost race of its ledger its charge is not assumed for a moment."""
        place, active = place_for(), set()
        for name in ("a", "b"):
            place.set_waiting(waiting(name))
        starts = AssumedStarts(place, active=active)
        active.update(turn.waiting.uid for turn in starts.due(now=0, count=1))
        place.drop_reservation("uid-a")
        starts.entries.put_back("uid-a")
        assert due(place, starts=starts) == ["b"]
        active.clear()
        assert due(place, starts=starts) == ["a"]

    def test_a_gang_has_no_second_turn_until_the_releases_of_all_its_members_are_over(self):
        place, active = place_for(), set()
        for name in ("a", "b"):
            place.set_waiting(member(name, size=2))
        starts = AssumedStarts(place, active=active)
        active.update(turn.waiting.uid for turn in starts.due(now=0, count=1))
        for uid in active:
            place.drop_reservation(uid)
            starts.entries.put_back(uid)
        active.discard("uid-a")
        assert due(place, starts=starts) == []
        active.clear()
        assert due(place, starts=starts) == ["a", "b"]

    @pytest.mark.parametrize(
        "kept",
        [
            pytest.param({"foreign_gates": ("example.com/gate",)}, id="held by another controller"),
            pytest.param({"is_terminating": True}, id="being deleted"),
        ],
    )
    def test_pods_that_are_not_to_start_are_left_out(self, kept):
        place = place_for()
        place.set_waiting(waiting("a", **kept))
        assert due(place) == []

    def test_an_edit_of_the_policy_is_judged_at_once(self):
        place = place_for(team(limit_=0, guaranteed=0, **LIMITED))
        place.set_waiting(waiting("a"))
        starts = AssumedStarts(place)
        assert due(place, starts=starts) == []
        place.set_policy(policy(team(limit_=4, **LIMITED), hash="p2"))
        assert due(place, starts=starts) == ["a"]

    def test_the_team_that_is_furthest_below_its_share_goes_first(self):
        held = [resident(10, node="n0"), resident(2, node="n1", namespace="team-b")]
        place = place_for(
            team(guaranteed=20, limit_=20, **LIMITED), team("team-b", guaranteed=20, **LIMITED), residents=held
        )
        place.set_waiting(waiting("older", created=1))
        place.set_waiting(waiting("poorer", namespace="team-b", created=2))
        assert due(place, 1) == ["poorer"]

    def test_where_policy_is_not_enforced_any_more_every_pod_starts(self):
        place = place_for(team(limit_=0, guaranteed=0, **LIMITED), enforce=Enforcement.SHADOW)
        place.set_waiting(waiting("a", 4))
        assert due(place) == ["a"]
        assert place.charge_of("uid-a").tier is Tier.PREEMPTIBLE


class TestBlocked:
    def test_the_reason_is_kept_with_its_numbers(self):
        place = place_for(team(guaranteed=2, limit_=2, **LIMITED), residents=[resident(2, node="n0")])
        place.set_waiting(waiting("a"))
        starts = AssumedStarts(place)
        assert due(place, starts=starts) == []
        blocked = starts.blocked["uid-a"]
        assert isinstance(blocked.verdict, OverLimit)
        assert blocked.reason.text == "team team-a holds 2 of 2; next when 1 GPU comes back"

    def test_a_pod_without_room_waits_uncharged_and_others_run_ahead_as_preemptible(self):
        held = [resident(8, node=f"n{number}", namespace="team-b") for number in range(2)]
        place = place_for(nodes=2, residents=held)
        place.set_waiting(waiting("head", 8, created=1))
        place.set_waiting(waiting("small", 2, created=2))
        turns = AssumedStarts(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.attempt.way) for turn in turns] == [("small", Way.BACKFILL)]
        assert turns[0].admit.charge.tier is Tier.PREEMPTIBLE
        assert turns[0].admit.reason.code is Code.BACKFILLS
        assert turns[0].admit.requested_tier is None, "it may be promoted once the head has started"
        assert place.waiting.wants("n0")

    def test_back_fill_never_starts_a_pod_that_must_not_borrow(self):
        held = [resident(8, node="n0", namespace="team-b")]
        place = place_for(nodes=1, residents=held)
        place.set_waiting(waiting("head", 8, created=1))
        place.set_waiting(waiting("small", 2, created=2, tier_label="guaranteed"))
        assert due(place, now=10) == []

    def test_a_pod_inside_its_share_starts_where_reclaim_can_make_room(self):
        held = [resident(10, node="n0", namespace="team-b", tier="preemptible")]
        place = place_for(nodes=1, residents=held)
        place.set_waiting(waiting("head", 8))
        turns = AssumedStarts(place).due(now=10, count=9)
        assert [turn.admit.charge.tier for turn in turns] == [Tier.GUARANTEED]

    def test_a_pod_that_would_borrow_evicts_none_and_keeps_its_best_node_free(self):
        held = [
            resident(8, node="n0", namespace="team-b", tier="preemptible"),
            resident(10, node="n1", namespace="team-b"),
        ]
        place = place_for(team(guaranteed=0, **LIMITED), team("team-b", **LIMITED), nodes=2, residents=held)
        place.set_waiting(waiting("head", 8, created=1))
        place.set_waiting(waiting("small", 2, created=2))
        starts = AssumedStarts(place)
        assert due(place, now=10, starts=starts) == []
        assert starts.blocked["uid-head"].verdict == NoRoom(frozenset({"n0"}))


class TestTheCharge:
    def test_is_decided_again_on_the_present_world(self):
        place = place_for(team(guaranteed=4, limit_=4, **LIMITED))
        place.set_waiting(waiting("a", 4))
        starts = AssumedStarts(place)
        (turn,) = starts.due(now=0, count=1)
        decision, charge, _ = starts.judge_again(turn)
        assert isinstance(decision, Admit)
        assert (charge.pod.uid, charge.charge.gpus, charge.node) == ("uid-a", gpus(4), decision.node_choice.nodes[0])
        assert place.usage("team-a").total == 0, "the ledger assumes it"
        assert not charge.is_promotion

    def test_another_pod_that_was_charged_meanwhile_comes_first(self):
        place = place_for(team(guaranteed=4, limit_=4, **LIMITED))
        place.set_waiting(waiting("a", 4))
        starts = AssumedStarts(place)
        (turn,) = starts.due(now=0, count=1)
        place.drop_reservation("uid-a")
        place.assume(flight(pod(4, uid="rival"), Charge("team-a", Tier.GUARANTEED, gpus(4)), "n0"))
        decision, charge, _ = starts.judge_again(turn)
        assert isinstance(decision, Retry)
        assert charge is None
        assert place.usage("team-a").total == gpus(4)

    def test_a_pod_that_was_deleted_meanwhile_is_not_charged(self):
        place = place_for()
        place.set_waiting(waiting("a"))
        starts = AssumedStarts(place)
        (turn,) = starts.due(now=0, count=1)
        place.remove_pod("uid-a")
        assert starts.judge_again(turn).flight is None


def test_who_borrowed_before_comes_later_where_past_use_counts():
    place = place_for(
        team(guaranteed=0, **LIMITED), team("team-b", guaranteed=0, **LIMITED), queue=QueueRules(half_life_seconds=100)
    )
    place.set_pod(resident(4, node="n0", uid="x", tier="preemptible"))
    starts = AssumedStarts(place)
    starts.due(now=0, count=1)
    place.remove_pod("x")
    starts.due(now=100, count=1)
    place.set_waiting(waiting("older", created=1))
    place.set_waiting(waiting("newer", namespace="team-b", created=2))
    assert due(place, 1, now=100, starts=starts) == ["newer"]
    assert due(place_for(*place.policy.teams), 1) == []


@examples()
@given(
    sizes=st.lists(st.tuples(st.integers(1, 10), st.sampled_from(["team-a", "team-b"])), max_size=12),
    limits=st.tuples(st.integers(0, 25), st.integers(0, 25)),
    depth=st.integers(1, 12),
)
def test_no_order_of_releases_passes_a_limit_or_fills_a_node_twice(sizes, limits, depth):
    teams = [
        team(name, guaranteed=limit // 2, limit_=limit, **LIMITED)
        for name, limit in zip(("team-a", "team-b"), limits, strict=True)
    ]
    place = place_for(*teams, nodes=2, queue=QueueRules(depth=depth))
    for number, (size, name) in enumerate(sizes):
        place.set_waiting(waiting(f"p{number}", size, namespace=name, created=number))
    AssumedStarts(place).due(now=100, count=100)
    for each in teams:
        assert place.usage(each.name).total <= each.gpus.limit
    assert all(place.fleet.free(f"n{number}", "nvidia.com/gpu") >= 0 for number in range(2))


class TestWhoKeepsItsGate:
    """Of the pods that start on room that reclaim is to make."""

    def charges(self, *pods, borrowed=8, awaiting=(), **more):
        """What the ledger is to list of each pod: two nodes of eight GPUs, of which borrowers hold so many."""
        borrowers = [
            resident(1, uid=f"b{number}", node=f"n{number // 8}", namespace="team-b", tier="preemptible")
            for number in range(borrowed)
        ]
        nodes = [node("n0", gpus=8), node("n1", gpus=8)]
        teams = (team(guaranteed=16, limit_=None, **LIMITED), team("team-b"))
        place = world(policy(*teams, **more), nodes=nodes, residents=borrowers)
        for found in pods:
            place.set_waiting(found)
        starts = AssumedStarts(place, awaiting=awaiting)
        listed = {}
        for turn in starts.due(now=0, count=100):
            listed[turn.waiting.pod.name] = found = starts.judge_again(turn).flight
            place.assume(found)
        return listed

    def test_a_pod_alone_and_its_listed_charge_has_no_labels_of_its_owner(self):
        app = {"app": "x" * 500}
        selects = LabelSelector((requirement("app", "In", app["app"]),))
        spread = (SpreadRule("kubernetes.io/hostname", 1, is_hard=False, selector=selects),)
        listed = self.charges(waiting("a", labels=app, topology=spread), borrowed=16)["a"]
        assert (listed.takes_back, listed.node, listed.pod.labels) == (True, "n0", {})
        free = self.charges(waiting("a", labels=app, topology=spread))["a"]
        assert (free.takes_back, free.node) == (False, "n1")
        assert free.pod.labels

    def test_all_of_a_gang_if_one_of_them_lacks_room(self):
        listed = self.charges(*(member(name, count=8, size=2) for name in "ab"))
        assert {name: (each.node, each.takes_back) for name, each in listed.items()} == {
            "a": ("n1", True),
            "b": ("n0", True),
        }
        listed = self.charges(*(member(name, count=4, size=2) for name in "ab"))
        assert [(each.node, each.takes_back) for each in listed.values()] == [("n1", False)] * 2

    def test_none_beyond_so_many_that_keep_their_gates_already(self):
        """A pass looks at each of them, and a user may have many gangs."""
        members = [member(name, count=8, size=2) for name in "ab"]
        for number, are_kept in ((MOST - 2, True), (MOST - 1, False)):
            listed = self.charges(*members, awaiting=range(number))
            assert [each.takes_back for each in listed.values()] == [are_kept] * 2

    def test_none_of_a_gang_where_no_nodes_are_chosen(self):
        members = [member(name, count=8, size=2) for name in "ab"]
        listed = self.charges(*members, placement=PlacementRules(mode=Mode.OFF))
        assert [each.takes_back for each in listed.values()] == [False] * 2

    def test_no_pod_that_follows_a_gang_that_has_started(self):
        """It stays in the domain of the others, which the evictor does not know of a pod in line."""
        place = world(
            policy(team(guaranteed=16, limit_=None, **LIMITED), team("team-b")),
            nodes=[node("n0", gpus=8)],
            residents=[resident(1, uid=f"b{n}", node="n0", namespace="team-b", tier="preemptible") for n in range(7)],
        )
        place.set_pod(resident(1, uid="first", node="n0", gang="team-a/g"))
        place.set_waiting(member("late", size=2))
        starts = AssumedStarts(place)
        [turn] = starts.due(now=0, count=1)
        assert (turn.admit.node_choice.mode, starts.judge_again(turn).flight.takes_back) == (Mode.PREFER, False)


def test_at_its_end_what_was_assumed_and_not_charged_is_dropped():
    place, listed = place_for(), {}
    for name in ("judged", "listed", "open"):
        place.set_waiting(waiting(name))
    starts = AssumedStarts(place, listed=lambda _team, uid: listed.get(uid))
    turns = {turn.waiting.pod.name: turn for turn in starts.due(now=0, count=9)}
    place.assume(starts.judge_again(turns["judged"]).flight)  # in the hands of the ledger from here on
    listed["uid-listed"] = object()
    starts.close()
    assert [place.is_assumed(f"uid-{name}") for name in turns] == [name != "open" for name in turns]


class TestNodesThatRejectPods:
    """Pods of a team whose pods wait in kube-scheduler otherwise."""

    def closed(self):
        place = place_for(team(), nodes=1)
        place.tick(NOW)
        for number in range(STRIKES):
            rejection = Rejection(NodeName("n0"), Namespace("team-a"), Uid(f"u{number}"), NOW, "OutOfnvidia.com/gpu")
            place.rejecting_nodes.note(rejection)
        for number in range(3):
            place.set_waiting(waiting(f"p{number}", created=number))
        return place

    def test_none_starts_while_it_is_closed_and_then_one_tries_it(self):
        place = self.closed()
        starts = AssumedStarts(place)
        assert due(place, now=NOW, starts=starts) == []
        [text] = {judged.reason.text for judged in starts.blocked.values()}
        assert text.startswith("node n0 rejected the last 3 pods of team team-a (OutOfnvidia.com/gpu)")
        place.tick(NOW + FIRST_SECONDS)
        [turn] = starts.due(now=place.now, count=100)
        decision, charged, _ = starts.judge_again(turn)
        assert isinstance(decision, Admit)
        assert decision.node_choice.nodes == ("n0",)
        place.assume(charged)
        assert due(place, now=place.now, starts=starts) == []

    def test_one_that_does_not_start_after_all_leaves_the_try_to_another(self):
        place = self.closed()
        starts = AssumedStarts(place)
        place.tick(NOW + FIRST_SECONDS)
        [turn] = starts.due(now=place.now, count=100)
        starts.drop_assumed(turn)
        place.waiting.discard(turn.waiting.uid)
        assert due(place, now=place.now, starts=starts) == ["p1"]

    def test_all_start_once_one_runs(self):
        place = self.closed()
        place.tick(NOW + 60)
        place.rejecting_nodes.note(started(at=NOW + 60))
        assert due(place, now=place.now) == ["p0", "p1", "p2"]
