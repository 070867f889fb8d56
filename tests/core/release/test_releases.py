"""Releases on a world: who starts, what is charged, and what happens when the world changed before the charge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import demand, flight, gpus, node, pod, policy, resident, team, world
from tests.core.support.waiting import member, waiting
from tests.examples import examples
from webhook.core.model.decision import Admit, Charge, Retry
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Enforcement, Mode, OnLimit, OnNoRoom, QueueRules
from webhook.core.model.reason import Code
from webhook.core.model.selector import NODE_NAME_FIELD, Constraints, NodeTerm, Operator, Requirement
from webhook.core.model.tier import Tier
from webhook.core.placement.rejecting_nodes import FIRST_SECONDS, STRIKES, Rejection, Start
from webhook.core.queue.hold_backs import IDLE_SECONDS
from webhook.core.queue.verdict import NoRoom, OverLimit, Way
from webhook.core.release.releases import Releases, unfinished
from webhook.core.tiers.tier_changes import tier_changes

NOW = 1_000_000
LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def place_for(*teams, nodes=4, residents=(), **more):
    return world(
        policy(*(teams or (team(**LIMITED), team("team-b", **LIMITED))), **more),
        nodes=[node(f"n{number}") for number in range(nodes)],
        residents=list(residents),
    )


def due(place, count=100, *, now=0, releases=None):
    turns = (releases or Releases(place)).due(now=now, count=count)
    return [turn.waiting.pod.name for turn in turns]


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
        releases = Releases(place)
        assert due(place, releases=releases) == ["a"]
        releases.view.put_back("uid-a")
        assert due(place, releases=releases) == []

    def test_a_pod_has_no_second_turn_until_its_release_is_over(self):
        """After a lost race of its ledger its charge is not assumed for a moment."""
        place, active = place_for(), set()
        for name in ("a", "b"):
            place.set_waiting(waiting(name))
        releases = Releases(place, active=active)
        active.update(turn.waiting.uid for turn in releases.due(now=0, count=1))
        place.drop_reservation("uid-a")
        releases.view.put_back("uid-a")
        assert due(place, releases=releases) == ["b"]
        active.clear()
        assert due(place, releases=releases) == ["a"]

    def test_a_gang_has_no_second_turn_until_the_releases_of_all_its_members_are_over(self):
        place, active = place_for(), set()
        for name in ("a", "b"):
            place.set_waiting(member(name, size=2))
        releases = Releases(place, active=active)
        active.update(turn.waiting.uid for turn in releases.due(now=0, count=1))
        for uid in active:
            place.drop_reservation(uid)
            releases.view.put_back(uid)
        active.discard("uid-a")
        assert due(place, releases=releases) == []
        active.clear()
        assert due(place, releases=releases) == ["a", "b"]

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
        releases = Releases(place)
        assert due(place, releases=releases) == []
        place.set_policy(policy(team(limit_=4, **LIMITED), hash="p2"))
        assert due(place, releases=releases) == ["a"]

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
        releases = Releases(place)
        assert due(place, releases=releases) == []
        blocked = releases.blocked["uid-a"]
        assert isinstance(blocked.verdict, OverLimit)
        assert blocked.reason.text == "team team-a holds 2 of 2; next when 1 GPU comes back"

    def test_a_pod_without_room_waits_uncharged_and_others_run_ahead_as_preemptible(self):
        held = [resident(8, node=f"n{number}", namespace="team-b") for number in range(2)]
        place = place_for(nodes=2, residents=held)
        place.set_waiting(waiting("head", 8, created=1))
        place.set_waiting(waiting("small", 2, created=2))
        turns = Releases(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.way) for turn in turns] == [("small", Way.BACKFILL)]
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
        turns = Releases(place).due(now=10, count=9)
        assert [turn.admit.charge.tier for turn in turns] == [Tier.GUARANTEED]

    def test_a_pod_that_would_borrow_evicts_none_and_keeps_its_best_node_free(self):
        held = [
            resident(8, node="n0", namespace="team-b", tier="preemptible"),
            resident(10, node="n1", namespace="team-b"),
        ]
        place = place_for(team(guaranteed=0, **LIMITED), team("team-b", **LIMITED), nodes=2, residents=held)
        place.set_waiting(waiting("head", 8, created=1))
        place.set_waiting(waiting("small", 2, created=2))
        releases = Releases(place)
        assert due(place, now=10, releases=releases) == []
        assert releases.blocked["uid-head"].verdict == NoRoom(frozenset({"n0"}))


class TestTheCharge:
    def test_is_decided_again_on_the_present_world(self):
        place = place_for(team(guaranteed=4, limit_=4, **LIMITED))
        place.set_waiting(waiting("a", 4))
        releases = Releases(place)
        (turn,) = releases.due(now=0, count=1)
        decision, charge, _ = releases.judge_again(turn)
        assert isinstance(decision, Admit)
        assert (charge.pod.uid, charge.charge.gpus, charge.node) == ("uid-a", gpus(4), decision.node_choice.nodes[0])
        assert place.usage("team-a").total == 0, "the ledger assumes it"
        assert not charge.is_promotion

    def test_another_pod_that_was_charged_meanwhile_comes_first(self):
        place = place_for(team(guaranteed=4, limit_=4, **LIMITED))
        place.set_waiting(waiting("a", 4))
        releases = Releases(place)
        (turn,) = releases.due(now=0, count=1)
        place.drop_reservation("uid-a")
        place.assume(flight(pod(4, uid="rival"), Charge("team-a", Tier.GUARANTEED, gpus(4)), "n0"))
        decision, charge, _ = releases.judge_again(turn)
        assert isinstance(decision, Retry)
        assert charge is None
        assert place.usage("team-a").total == gpus(4)

    def test_a_pod_that_was_deleted_meanwhile_is_not_charged(self):
        place = place_for()
        place.set_waiting(waiting("a"))
        releases = Releases(place)
        (turn,) = releases.due(now=0, count=1)
        place.remove_pod("uid-a")
        assert releases.judge_again(turn).flight is None


class TestWhatTheLedgerLists:
    def charged(self, place):
        found = flight(pod(4, uid="uid-a"), Charge("team-a", Tier.GUARANTEED, gpus(4)), "n2")
        place.assume(found)
        return found

    def test_is_released_as_it_was_charged_and_stays_counted(self):
        place = place_for()
        place.set_waiting(waiting("a", 4))
        listed = {}
        releases = Releases(place, listed=lambda _, uid: listed.get(uid))
        (turn,) = releases.due(now=0, count=1)
        listed["uid-a"] = self.charged(place)
        decision, charge, _ = releases.judge_again(turn)
        assert (decision.node_choice.nodes, charge) == (("n2",), listed["uid-a"])
        releases.drop_assumed(turn)
        assert place.usage("team-a").total == gpus(4)

    def test_has_no_turn_until_it_is_listed_no_longer(self):
        place = place_for()
        place.set_waiting(waiting("a", 4))
        releases = Releases(place)
        releases.view.sync()
        self.charged(place)
        assert due(place, releases=releases) == [], "charged after the entry was made"
        releases.view.put_back("uid-a")
        assert due(place, releases=releases) == []
        place.drop_reservation("uid-a")
        assert due(place, releases=releases) == ["a"], "nothing but the ledger said so"

    def test_a_turn_that_was_not_charged_is_dropped_again(self):
        place = place_for()
        place.set_waiting(waiting("a", 4))
        releases = Releases(place)
        (turn,) = releases.due(now=0, count=1)
        releases.drop_assumed(turn)
        assert place.usage("team-a").total == 0


class TestBesideAHeadThatIsPinnedToAFullNode:
    """A pod pinned to a node that never comes free must not hold up the lines of other teams."""

    def place(self, **more):
        held = [resident(10, node="n0", namespace="team-b", uid="full")]
        place = place_for(nodes=2, residents=held, **more)
        pinned = Constraints(terms=(NodeTerm(fields=(Requirement(NODE_NAME_FIELD, Operator.IN, ("n0",)),)),))
        place.set_waiting(waiting("pinned", 1, created=1, constraints=pinned))
        return place

    def test_pods_of_other_teams_start_in_their_turn_on_other_nodes(self):
        place = self.place()
        place.set_waiting(waiting("other", 2, namespace="team-b", created=2, tier_label="guaranteed"))
        turns = Releases(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.way) for turn in turns] == [("other", Way.IN_TURN)]
        assert turns[0].admit.charge.tier is Tier.GUARANTEED
        assert turns[0].admit.node_choice.nodes == ("n1",)

    def test_they_are_judged_again_for_those_nodes_when_they_are_charged(self):
        place = self.place()
        place.set_waiting(waiting("other", 2, namespace="team-b", created=2))
        releases = Releases(place)
        (turn,) = releases.due(now=10, count=9)
        place.remove_pod("full")
        decision, _, _ = releases.judge_again(turn)
        assert decision.node_choice.nodes == ("n1",), "n0 is for the pod ahead"

    def test_pods_of_its_own_team_run_ahead_of_it_as_preemptible(self):
        place = self.place()
        place.set_waiting(waiting("mine", 2, created=2))
        turns = Releases(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.way) for turn in turns] == [("mine", Way.BACKFILL)]

    def test_pods_of_other_teams_that_may_use_its_nodes_alone_run_ahead_of_it(self):
        place = place_for(nodes=2, residents=[resident(6, node="n0", namespace="team-b")])
        pinned = Constraints(terms=(NodeTerm(fields=(Requirement(NODE_NAME_FIELD, Operator.IN, ("n0",)),)),))
        place.set_waiting(waiting("head", 8, created=1, constraints=pinned))
        place.set_waiting(waiting("small", 2, namespace="team-b", created=2, constraints=pinned))
        turns = Releases(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.way) for turn in turns] == [("small", Way.BACKFILL)]

    def test_back_fill_on_other_nodes_may_be_promoted(self):
        place = self.place()
        place.set_pod(resident(1, node="n1", uid="ahead", tier="preemptible", is_backfill=True))
        Releases(place).due(now=10, count=9)
        assert [change.pod.uid for change in tier_changes(place.policy.team("team-a"), place)] == ["ahead"]


class TestAHeadThatReclaimMakesRoomFor:
    def place(self):
        borrowed = resident(4, node="n0", uid="back-fill", tier="preemptible", is_backfill=True)
        place = place_for(nodes=1, residents=[borrowed])
        place.set_waiting(waiting("head", 8, created=1))
        place.set_waiting(waiting("small", 3, created=2))
        return place

    def test_takes_its_room_at_once_so_that_none_behind_it_starts_there(self):
        place = self.place()
        turns = Releases(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.way) for turn in turns] == [("head", Way.IN_TURN)]
        assert (turns[0].admit.node_choice.mode, turns[0].admit.node_choice.nodes) == (Mode.PREFER, ("n0",))
        assert place.fleet.is_overbooked("n0", pod(1).demand)

    def test_keeps_back_fill_on_its_node_evictable_until_it_is_there(self):
        place = self.place()
        Releases(place).due(now=10, count=9)
        place.waiting.wanted = frozenset()
        assert tier_changes(place.policy.team("team-a"), place) == ()
        place.remove_pod("uid-head")
        place.drop_reservation("uid-head")
        assert [change.pod.uid for change in tier_changes(place.policy.team("team-a"), place)] == ["back-fill"]

    def test_is_not_bound_to_that_node_by_a_new_leader_either(self):
        place = self.place()
        charged = flight(pod(8, uid="uid-head"), Charge("team-a", Tier.GUARANTEED, gpus(8)), "n0")
        place.assume(charged)
        ((_, admit),) = unfinished(place, [charged])
        assert (admit.node_choice.mode, admit.node_choice.nodes) == (Mode.PREFER, ("n0",))


def test_back_fill_may_be_promoted_again_when_the_head_is_gone():
    held = [resident(10, node="n0", namespace="team-b")]
    place = place_for(nodes=1, residents=held)
    place.set_waiting(waiting("head", 8))
    releases = Releases(place)
    releases.due(now=0, count=1)
    assert place.waiting.wants("n0")
    place.remove_pod("uid-head")
    releases.due(now=0, count=1)
    assert not place.waiting.wants(None)


def test_the_kept_nodes_stay_the_same_from_pass_to_pass():
    held = [
        resident(5, node="n0", namespace="team-b", uid="x0"),
        resident(4, node="n1", namespace="team-b", uid="x1"),
    ]
    place = place_for(team(guaranteed=0, **LIMITED), team("team-b", **LIMITED), nodes=2, residents=held)
    place.set_waiting(waiting("head", 9))
    releases = Releases(place)
    releases.due(now=0, count=1)
    assert releases.blocked["uid-head"].verdict == NoRoom(frozenset({"n1"}))
    place.remove_pod("x0")
    place.set_pod(resident(2, node="n0", namespace="team-b", uid="x2"))
    releases.due(now=1, count=1)
    assert releases.blocked["uid-head"].verdict == NoRoom(frozenset({"n1"})), "n0 has more free now"
    assert Releases(place).due(now=1, count=1) == []


def test_who_borrowed_before_comes_later_where_past_use_counts():
    place = place_for(
        team(guaranteed=0, **LIMITED), team("team-b", guaranteed=0, **LIMITED), queue=QueueRules(half_life_seconds=100)
    )
    place.set_pod(resident(4, node="n0", uid="x", tier="preemptible"))
    releases = Releases(place)
    releases.due(now=0, count=1)
    place.remove_pod("x")
    releases.due(now=100, count=1)
    place.set_waiting(waiting("older", created=1))
    place.set_waiting(waiting("newer", namespace="team-b", created=2))
    assert due(place, 1, now=100, releases=releases) == ["newer"]
    assert due(place_for(*place.policy.teams), 1) == []


def test_a_new_leader_goes_on_with_what_is_charged():
    place = place_for()
    place.set_waiting(waiting("a", 2))
    charged = flight(pod(2, uid="uid-a"), Charge("team-a", Tier.GUARANTEED, gpus(2)), "n3")
    gone = flight(pod(2, uid="gone"), Charge("team-a", Tier.GUARANTEED, gpus(2)), "n3")
    ((found, admit),) = unfinished(place, [charged, gone])
    assert (found.uid, admit.node_choice.nodes, admit.charge) == ("uid-a", ("n3",), charged.charge)


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
    Releases(place).due(now=100, count=100)
    for each in teams:
        assert place.usage(each.name).total <= each.gpus.limit
    assert all(place.fleet.free(f"n{number}", "nvidia.com/gpu") >= 0 for number in range(2))


def test_at_its_end_what_was_assumed_and_not_charged_is_dropped():
    place, listed = place_for(), {}
    for name in ("judged", "listed", "open"):
        place.set_waiting(waiting(name))
    releases = Releases(place, listed=lambda _team, uid: listed.get(uid))
    turns = {turn.waiting.pod.name: turn for turn in releases.due(now=0, count=9)}
    place.assume(releases.judge_again(turns["judged"]).flight)  # in the hands of the ledger from here on
    listed["uid-listed"] = object()
    releases.close()
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
        releases = Releases(place)
        assert due(place, now=NOW, releases=releases) == []
        [text] = {judged.reason.text for judged in releases.blocked.values()}
        assert text.startswith("node n0 rejected the last 3 pods of team team-a (OutOfnvidia.com/gpu)")
        place.tick(NOW + FIRST_SECONDS)
        [turn] = releases.due(now=place.now, count=100)
        decision, charged, _ = releases.judge_again(turn)
        assert isinstance(decision, Admit)
        assert decision.node_choice.nodes == ("n0",)
        place.assume(charged)
        assert due(place, now=place.now, releases=releases) == []

    def test_one_that_does_not_start_after_all_leaves_the_try_to_another(self):
        place = self.closed()
        releases = Releases(place)
        place.tick(NOW + FIRST_SECONDS)
        [turn] = releases.due(now=place.now, count=100)
        releases.drop_assumed(turn)
        place.waiting.discard(turn.waiting.uid)
        assert due(place, now=place.now, releases=releases) == ["p1"]

    def test_all_start_once_one_runs(self):
        place = self.closed()
        place.tick(NOW + 60)
        place.rejecting_nodes.note(Start(NodeName("n0"), Namespace("team-a"), NOW + 60))
        assert due(place, now=place.now) == ["p0", "p1", "p2"]


class TestAHeadThatCannotStart:
    """A pod that finds no room must not hold others back for ever, and one that never can must not at all."""

    WHOLE = demand(1, cpu=64_000)

    def place(self, *, daemons, **more):
        known = [
            resident(uid=f"d{n}", tier=None, demand=demand(0, cpu=100), node=f"n{n}", handling=daemons)
            for n in range(2)
        ]
        place = place_for(nodes=2, residents=known, **more)
        place.set_waiting(waiting("head", demand=self.WHOLE, created=1))
        place.set_waiting(waiting("other", 2, namespace="team-b", created=2, tier_label="guaranteed"))
        return place

    def test_beside_the_pods_of_daemonsets_it_holds_back_no_other(self):
        releases = Releases(self.place(daemons=Handling.DAEMON_SET))
        assert due(None, now=10, releases=releases) == ["other"]
        (head,) = releases.blocked.values()
        assert "but none beside its own pods, such as those of DaemonSets: request less" in head.reason.text

    def test_while_its_gpus_are_idle_it_holds_others_back_for_ten_minutes(self):
        releases = Releases(self.place(daemons=Handling.MANAGED))
        assert due(None, now=10, releases=releases) == []
        assert due(None, now=10 + IDLE_SECONDS - 1, releases=releases) == []
        assert due(None, now=10 + IDLE_SECONDS, releases=releases) == ["other"]

    def test_a_gang_of_such_pods_holds_others_back_no_longer(self):
        place = place_for(
            team(guaranteed=0, limit_=40, **LIMITED),
            team("team-b", guaranteed=0, limit_=40, **LIMITED),
            nodes=2,
            residents=[resident(uid=f"d{n}", tier=None, demand=demand(0, cpu=100), node=f"n{n}") for n in range(2)],
        )
        for number in range(2):
            place.set_waiting(member(f"m{number}", demand=demand(10, cpu=64_000), size=2, created=1))
        place.set_waiting(waiting("small", 1, namespace="team-b", created=2))
        releases = Releases(place)
        assert due(None, now=10, releases=releases) == []
        assert due(None, now=10 + IDLE_SECONDS, releases=releases) == ["small"]

    def test_a_borrower_that_waits_for_gpus_holds_others_back_as_long_as_policy_says(self):
        held = [resident(5, node=f"n{n}", namespace="team-b", uid=f"full{n}") for n in range(2)]
        queue = QueueRules(hold_back_seconds=3600)
        place = place_for(
            team(guaranteed=0, limit_=40, **LIMITED), team("team-b", **LIMITED), nodes=2, residents=held, queue=queue
        )
        place.set_waiting(waiting("large", 10, created=1))
        for number in range(2):
            place.set_waiting(waiting(f"small{number}", 5, created=2 + number))
        releases = Releases(place)
        assert due(None, now=10, releases=releases) == ["small0"], "on the node that is not kept for the first"
        assert due(None, now=3609, releases=releases) == []
        assert due(None, now=3610, releases=releases) == ["small1"]
