"""The head of the line: what starts beside it, ahead of it and after it, and what is kept for it."""

from dataclasses import replace

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.line import LIMITED, due, place_for
from tests.core.support.maintained import MIG
from tests.core.support.make import demand, flight, gpus, node, pod, requirement, resident, team
from tests.core.support.racks import ONE_RACK
from tests.core.support.waiting import member, waiting
from webhook.core.line.entries import IDLE_SECONDS, NoRoom, Way
from webhook.core.line.line_pass import MAX_PODS
from webhook.core.model.constraints import NODE_NAME_FIELD, Constraints, NodeTerm, Operator, Requirement, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.demand import ClaimRef
from webhook.core.model.pod import Handling
from webhook.core.model.policy import LabelSelector, Mode, QueueRules
from webhook.core.model.topology import AffinityRule
from webhook.core.starting.awaited_room import unfinished
from webhook.core.starting.starts import AssumedStarts
from webhook.core.tiers.tier_changes import tier_changes

NOW = 1_000_000


def at(name):
    """The constraints of a pod that names its node."""
    return Constraints(terms=(NodeTerm(fields=(Requirement(NODE_NAME_FIELD, Operator.IN, (name,)),)),))


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
        turns = AssumedStarts(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.attempt.way) for turn in turns] == [("other", Way.IN_TURN)]
        assert turns[0].admit.charge.tier is Tier.GUARANTEED
        assert turns[0].admit.node_choice.nodes == ("n1",)

    def test_they_are_judged_again_for_those_nodes_when_they_are_charged(self):
        place = self.place()
        place.set_waiting(waiting("other", 2, namespace="team-b", created=2))
        starts = AssumedStarts(place)
        (turn,) = starts.due(now=10, count=9)
        place.remove_pod("full")
        decision, _, _ = starts.judge_again(turn)
        assert decision.node_choice.nodes == ("n1",), "n0 is for the pod ahead"

    def test_pods_of_its_own_team_run_ahead_of_it_as_preemptible(self):
        place = self.place()
        place.set_waiting(waiting("mine", 2, created=2))
        turns = AssumedStarts(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.attempt.way) for turn in turns] == [("mine", Way.BACKFILL)]

    def test_pods_of_other_teams_that_may_use_its_nodes_alone_run_ahead_of_it(self):
        place = place_for(nodes=2, residents=[resident(6, node="n0", namespace="team-b")])
        pinned = Constraints(terms=(NodeTerm(fields=(Requirement(NODE_NAME_FIELD, Operator.IN, ("n0",)),)),))
        place.set_waiting(waiting("head", 8, created=1, constraints=pinned))
        place.set_waiting(waiting("small", 2, namespace="team-b", created=2, constraints=pinned))
        turns = AssumedStarts(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.attempt.way) for turn in turns] == [("small", Way.BACKFILL)]

    def test_back_fill_on_other_nodes_may_be_promoted(self):
        place = self.place()
        place.set_pod(resident(1, node="n1", uid="ahead", tier="preemptible", is_backfill=True))
        AssumedStarts(place).due(now=10, count=9)
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
        turns = AssumedStarts(place).due(now=10, count=9)
        assert [(turn.waiting.pod.name, turn.attempt.way) for turn in turns] == [("head", Way.IN_TURN)]
        assert (turns[0].admit.node_choice.mode, turns[0].admit.node_choice.nodes) == (Mode.PREFER, ("n0",))
        assert place.fleet.is_overbooked("n0", pod(1).demand)

    def test_keeps_back_fill_on_its_node_evictable_until_it_is_there(self):
        place = self.place()
        AssumedStarts(place).due(now=10, count=9)
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
    starts = AssumedStarts(place)
    starts.due(now=0, count=1)
    assert place.waiting.wants("n0")
    place.remove_pod("uid-head")
    starts.due(now=0, count=1)
    assert not place.waiting.wants(None)


def test_the_kept_nodes_stay_the_same_from_pass_to_pass():
    held = [
        resident(5, node="n0", namespace="team-b", uid="x0"),
        resident(4, node="n1", namespace="team-b", uid="x1"),
    ]
    place = place_for(team(guaranteed=0, **LIMITED), team("team-b", **LIMITED), nodes=2, residents=held)
    place.set_waiting(waiting("head", 9))
    starts = AssumedStarts(place)
    starts.due(now=0, count=1)
    assert starts.blocked["uid-head"].verdict == NoRoom(frozenset({"n1"}))
    place.remove_pod("x0")
    place.set_pod(resident(2, node="n0", namespace="team-b", uid="x2"))
    starts.due(now=1, count=1)
    assert starts.blocked["uid-head"].verdict == NoRoom(frozenset({"n1"})), "n0 has more free now"
    assert AssumedStarts(place).due(now=1, count=1) == []


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
        starts = AssumedStarts(self.place(daemons=Handling.DAEMON_SET))
        assert due(None, now=10, starts=starts) == ["other"]
        (head,) = starts.blocked.values()
        assert "but none beside its own pods, such as those of DaemonSets: request less" in head.reason.text

    def test_while_its_gpus_are_idle_it_holds_others_back_for_ten_minutes(self):
        starts = AssumedStarts(self.place(daemons=Handling.MANAGED))
        assert due(None, now=10, starts=starts) == []
        assert due(None, now=10 + IDLE_SECONDS - 1, starts=starts) == []
        assert due(None, now=10 + IDLE_SECONDS, starts=starts) == ["other"]

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
        starts = AssumedStarts(place)
        assert due(None, now=10, starts=starts) == []
        assert due(None, now=10 + IDLE_SECONDS, starts=starts) == ["small"]

    def test_a_borrower_that_waits_for_gpus_holds_others_back_as_long_as_policy_says(self):
        held = [resident(5, node=f"n{n}", namespace="team-b", uid=f"full{n}") for n in range(2)]
        queue = QueueRules(hold_back_seconds=3600)
        place = place_for(
            team(guaranteed=0, limit_=40, **LIMITED), team("team-b", **LIMITED), nodes=2, residents=held, queue=queue
        )
        place.set_waiting(waiting("large", 10, created=1))
        for number in range(2):
            place.set_waiting(waiting(f"small{number}", 5, created=2 + number))
        starts = AssumedStarts(place)
        assert due(None, now=10, starts=starts) == ["small0"], "on the node that is not kept for the first"
        assert due(None, now=3609, starts=starts) == []
        assert due(None, now=3610, starts=starts) == ["small1"]


NO_APP = LabelSelector((requirement("app", "In", "none"),))
NO_PLACE = {
    "a node that is full of another team's guaranteed pods": {"constraints": at("n0")},
    "a node that does not exist": {"constraints": at("n9")},
    "a label that no node has": {"constraints": Constraints((("zone", "nowhere"),))},
    "a node that an operator changes": {"constraints": at("n3")},
    "pods that are nowhere": {
        "topology": (AffinityRule(("host",), False, LabelSelector((requirement("app", "In", "none"),))),)
    },
    "a domain in which no room comes": {"gang": "rack", "domain": ONE_RACK},
    "a gang of which one member has no place": {"gang": "odd"},
    "a claim that is not there": {"claims": (ClaimRef(claim="none"),)},
}


class TestAHeadThatALimitKeepsOut:
    """What comes free under a limit accumulates for the first that waits for it, while there is a place for it."""

    LATER = 10_000

    def place(self, *heads):
        """Of 24 GPUs of a department 22 are held, 6 of them borrowed; team-a and team-b hold less than their shares.

        n0 is full of the guaranteed pods of another department, n3 is changed by an operator, n1 and n2 have room.
        """
        tree = tree_policy(top=department("top", guaranteed=24, limit_=24), guaranteed=8)
        teams = [replace(each, **LIMITED) for each in tree.teams]
        found = place_for(
            *teams,
            departments=tree.departments,
            residents=[
                *(resident(1, node="n0", namespace="team-d", uid=f"full{n}") for n in range(8)),
                *(resident(1, node="n1", uid=f"a{n}") for n in range(4)),
                *(resident(1, node="n2", namespace="team-b", uid=f"b{n}") for n in range(4)),
                resident(8, node="n4", namespace="team-c", uid="c"),
                *(resident(1, node="n2", namespace="team-c", uid=f"e{n}", tier="preemptible") for n in range(6)),
            ],
        )
        found.set_node(node("n0", labels={"rack": "r0"}, gpus=8))
        found.set_node(node("n3", maintenance=MIG))
        found.set_node(node("n4", gpus=8))
        for head in heads:
            found.set_waiting(head)
        return found

    def heads(self, *, count=3, gang=None, **more):
        if gang is None:
            return [waiting("head", count, created=1, **more)]
        placed = {} if "domain" in more else {"constraints": at("n0")}
        return [
            member("head", gang, count, size=2, created=1, **more),
            member("last", gang, 1, size=2, created=1, **more, **placed),
        ]

    @pytest.mark.parametrize("asks", NO_PLACE.values(), ids=NO_PLACE.keys())
    def test_without_a_place_it_holds_no_limit(self, asks):
        behind = waiting("behind", 2, created=2, tier_label="preemptible")
        assert "behind" in due(self.place(*self.heads(**asks), behind), now=self.LATER)

    @pytest.mark.parametrize("gang", [None, "whole"])
    def test_with_a_place_the_limit_accumulates_for_it(self, gang):
        heads = [waiting("head", 3, created=1)]
        if gang is not None:
            heads = [member("head", gang, 2, size=2, created=1), member("last", gang, 1, size=2, created=1)]
        behind = waiting("behind", 2, created=2, tier_label="preemptible")
        assert due(self.place(*heads, behind), now=self.LATER) == []
        other = waiting("other", 2, namespace="team-b", created=2, tier_label="preemptible")
        assert due(self.place(*heads, other), now=self.LATER) == [], "one that borrows waits, whatever its team"

    def test_a_pod_inside_its_share_waits_for_no_head_of_another_team(self):
        owed = waiting("owed", 2, namespace="team-b", created=2)
        assert due(self.place(waiting("head", 3, created=1), owed), now=self.LATER) == ["owed"]
        mine = waiting("mine", 2, created=2)
        assert due(self.place(waiting("head", 3, created=1), mine), now=self.LATER) == [], "its own team's comes first"

    def test_room_under_the_pods_that_the_limit_counts_is_a_place_for_one_that_borrows(self):
        """Else smaller pods would take each GPU that comes free, and no node would ever have room for it."""
        small = waiting("small", 1, created=2, tier_label="preemptible")
        for name, want in (("n2", []), ("n0", ["small"])):
            large = waiting("large", 8, created=1, tier_label="preemptible", constraints=at(name))
            assert due(self.place(large, small), now=self.LATER) == want

    def test_one_limit_of_a_user_is_held_only_with_a_place(self):
        for pinned, want in (({}, []), ({"constraints": at("n0")}, ["behind"])):
            users = team(guaranteed=0, limit_=40, per_user=gpus(4), **LIMITED)
            held = [resident(8, node="n0", namespace="team-b", uid="full"), resident(2, node="n1", user="ann")]
            place = place_for(users, team("team-b"), nodes=2, residents=held)
            place.set_waiting(waiting("head", 3, created=1, user="ann", **pinned))
            place.set_waiting(waiting("behind", 2, created=2, user="ann"))
            assert due(place, now=self.LATER) == want

    def test_many_heads_without_a_place_are_judged_so_often_and_hold_nothing(self):
        heads = [waiting(f"head{n}", 3 + n, user=f"u{n}", created=1, constraints=at("n0")) for n in range(MAX_PODS + 9)]
        behind = waiting("behind", 2, created=2, tier_label="preemptible")
        assert due(self.place(*heads, behind), now=self.LATER) == ["behind"]


def test_a_pass_that_ends_early_goes_on_with_the_next_in_order():
    place = place_for(nodes=2)
    for number in range(4):
        place.set_waiting(waiting(f"p{number}", 1, created=number))
    starts = AssumedStarts(place)
    names = [[turn.waiting.pod.name for turn in starts.due(now=10, count=9, is_enough=lambda: True)] for _ in range(5)]
    assert names == [["p0"], ["p1"], ["p2"], ["p3"], []]
