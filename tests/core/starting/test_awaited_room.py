"""Charged pods that keep their gate until reclaim has made their room."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.make import node, policy, resident, team, world
from tests.core.support.waiting import member, waiting
from webhook.core.model.amounts import NodeName
from webhook.core.model.constraints import HELD, DomainRequest, Effect, Taint, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Enforcement, Mode, ReclaimRules
from webhook.core.quota.charges import flight_of
from webhook.core.starting.awaited_room import FREE_SECONDS, LONGEST_SECONDS, UNHELD_SECONDS, AwaitedRoom

ALL = 100


def held(name, *ids, gpus=8):
    return node(name, gpus=gpus, taints=tuple(Taint(HELD, Effect.NO_SCHEDULE, id_) for id_ in ids))


def borrower(name, on="n0"):
    return resident(1, uid=name, node=on, namespace="team-c", tier="preemptible")


def place_for(*nodes, borrowers=8, **more):
    """Two nodes of eight GPUs, the first of which is full of borrowers."""
    teams = [team(name, guaranteed=100, limit_=None) for name in ("team-a", "team-c")]
    return world(
        policy(*teams, **more),
        nodes=[*(nodes or (node("n0", gpus=8), node("n1", gpus=8)))],
        residents=[borrower(f"b{number}") for number in range(borrowers)],
    )


def charged(place, room, name, *, count=1, on="n0", now=0.0, holds=(), gang=None, **more):
    """A pod in line that the leader has charged on a node; a member of a gang with so many of them."""
    make_waiting = waiting if gang is None else partial(member, size=gang)
    found = make_waiting(name, count=count, holds=tuple(holds), **more)
    place.set_waiting(found)
    labeled = found.pod._replace(team_label="team-a", tier_label="guaranteed")
    charge = Charge(found.team, Tier.GUARANTEED, found.pod.demand.gpus)
    flight = flight_of(labeled, charge, nodes=(NodeName(on),))._replace(takes_back=True)
    place.assume(flight)
    room.add(found, flight, now=now)
    return found


def let_in(place, found, *holds):
    """The evictor lets a pod tolerate held nodes."""
    place.set_waiting(replace(place.waiting.get(found.uid), holds=holds))


def started(room, now=1.0, count=ALL):
    """What starts once the room that is free now has been free for a while."""
    found = room.take(now=now, count=count)
    return [*found, *room.take(now=now + FREE_SECONDS, count=count - len(found))]


def taken(room, now=1.0, count=ALL):
    return [waiting_pod.pod.name for waiting_pod, _ in started(room, now, count)]


def test_it_starts_on_the_node_that_keeps_its_room_once_the_victim_is_gone():
    place = place_for()
    room = AwaitedRoom(place)
    found = charged(place, room, "p")
    assert taken(room) == []
    place.set_node(held("n0", "h1"))
    let_in(place, found, "h1")
    assert taken(room) == []
    place.remove_pod("b0")
    ((_, admit),) = started(room)
    assert (admit.node_choice.nodes, admit.node_choice.mode) == (("n0",), Mode.AUTO)
    assert found.uid not in room
    assert taken(room) == []


def test_it_is_assumed_on_the_node_that_keeps_its_room_and_no_longer_on_the_one_it_was_charged_for():
    place = place_for(node("n0", gpus=8), node("n1", gpus=8), borrowers=8)
    room = AwaitedRoom(place)
    found = charged(place, room, "p", on="n1")
    place.set_node(held("n0", "h1"))
    let_in(place, found, "h1")
    assert taken(room) == []
    assert [place.fleet.free(NodeName(name), make.GPU) for name in ("n0", "n1")] == [-1, 8]
    assert place.usage(found.team).guaranteed == make.gpus(1)


def test_the_pods_of_a_node_start_one_by_one_as_its_victims_go():
    place = place_for(held("n0", "h1"))
    room = AwaitedRoom(place)
    for name in ("p", "q", "r"):
        charged(place, room, name, holds=("h1",))
    assert taken(room) == []
    for borrowed, name in zip(("b0", "b1", "b2"), ("p", "q", "r"), strict=True):
        place.remove_pod(borrowed)
        assert taken(room) == [name]


def test_it_starts_a_little_later_than_its_room_is_seen_free():
    """kube-scheduler may see the victim go later than this replica."""
    place = place_for(held("n0", "h1"))
    room = AwaitedRoom(place)
    charged(place, room, "p", holds=("h1",))
    assert (room.take(now=1, count=ALL), room.is_settling) == ([], False)
    place.remove_pod("b0")
    assert (room.take(now=2, count=ALL), room.is_settling) == ([], True)
    place.set_pod(borrower("other"))
    assert (room.take(now=2 + FREE_SECONDS, count=ALL), room.is_settling) == ([], False)
    place.remove_pod("other")
    assert room.take(now=3, count=ALL) == []
    assert len(room.take(now=3 + FREE_SECONDS, count=ALL)) == 1
    assert not room.is_settling


def test_a_large_pod_does_not_keep_a_small_one_of_its_node_waiting():
    place = place_for(held("n0", "h1"))
    room = AwaitedRoom(place)
    charged(place, room, "large", count=4, holds=("h1",))
    charged(place, room, "small", holds=("h1",))
    place.remove_pod("b0")
    assert taken(room) == ["small"]


def test_without_room_kept_for_it_it_waits_in_kube_scheduler_after_a_while():
    place = place_for()
    room = AwaitedRoom(place)
    charged(place, room, "p", now=100.0)
    assert taken(room, now=100 + UNHELD_SECONDS - 1) == []
    ((_, admit),) = room.take(now=100 + UNHELD_SECONDS, count=ALL)
    assert (admit.node_choice.nodes, admit.node_choice.mode) == (("n0",), Mode.PREFER)


def test_while_a_node_keeps_its_room_it_waits_longer_but_not_for_ever():
    place = place_for(held("n0", "h1"), reclaim=ReclaimRules(notice_seconds=600, longest_grace_seconds=60))
    room = AwaitedRoom(place)
    charged(place, room, "p", holds=("h1",))
    longest = 660 + LONGEST_SECONDS
    assert taken(room, now=longest - 1) == []
    assert taken(room, now=longest) == ["p"]


def test_the_time_without_room_begins_when_a_node_keeps_it_no_longer():
    place = place_for(held("n0", "h1"))
    room = AwaitedRoom(place)
    charged(place, room, "p", holds=("h1",))
    assert taken(room, now=90.0) == []
    place.set_node(node("n0", gpus=8))
    assert taken(room, now=90 + UNHELD_SECONDS - 1) == []
    assert taken(room, now=90 + UNHELD_SECONDS) == ["p"]


def test_the_latest_of_several_nodes_that_kept_its_room_counts():
    place = place_for(held("n0", "h1"), held("n1", "h2"))
    room = AwaitedRoom(place)
    charged(place, room, "p", holds=("gone", "h1", "h2"))
    ((_, admit),) = started(room)
    assert admit.node_choice.nodes == ("n1",)


def test_what_became_of_a_pod_that_may_not_start_any_more_is_left_to_its_release():
    place = place_for()
    room = AwaitedRoom(place)
    ended = charged(place, room, "ended")
    gated = charged(place, room, "gated")
    charged(place, room, "waits")
    place.set_waiting(replace(ended, is_terminating=True))
    place.set_waiting(replace(gated, pod=gated.pod._replace(foreign_gates=("other",))))
    assert taken(room) == ["ended", "gated"]


def test_a_pod_that_is_gone_is_forgotten():
    place = place_for()
    room = AwaitedRoom(place)
    found = charged(place, room, "p")
    place.remove_pod(found.uid)
    assert taken(room, now=10_000) == []
    assert found.uid not in room


def test_where_policy_is_not_enforced_any_more_nothing_is_evicted_so_it_starts():
    place = place_for()
    room = AwaitedRoom(place)
    charged(place, room, "p")
    place.set_policy(replace(place.policy, enforce=Enforcement.OFF))
    assert taken(room) == ["p"]


def test_no_more_than_asked_for_start_and_the_others_stay():
    place = place_for(held("n0", "h1"), borrowers=0)
    room = AwaitedRoom(place)
    for name in ("p", "q", "r"):
        charged(place, room, name, holds=("h1",))
    assert taken(room, count=2) == ["p", "q"]
    assert taken(room, count=0) == []
    assert taken(room) == ["r"]


def test_it_starts_where_it_is_charged_once_room_is_free_there_though_no_node_keeps_any():
    place = place_for()
    room = AwaitedRoom(place)
    charged(place, room, "p")
    assert taken(room) == []
    place.remove_pod("b0")
    ((_, admit),) = started(room)
    assert (admit.node_choice.nodes, admit.node_choice.mode) == (("n0",), Mode.AUTO)


@pytest.mark.parametrize("closed", [held("n0", "of others"), node("n0", gpus=8, is_cordoned=True)])
def test_free_room_of_a_node_that_keeps_it_for_others_or_takes_no_pods_is_not_its(closed):
    place = place_for(closed, node("n1", gpus=8), borrowers=0)
    room = AwaitedRoom(place)
    charged(place, room, "p")
    assert taken(room, now=UNHELD_SECONDS - 1) == []
    assert taken(room, now=UNHELD_SECONDS) == ["p"]


class TestGangs:
    def place(self):
        return place_for(held("n0", "h1"), node("n1", gpus=8))

    def test_the_pods_of_a_gang_start_once_all_of_them_have_room(self):
        """One of them has it where it is charged, and no node keeps any for it."""
        place = self.place()
        room = AwaitedRoom(place)
        for name in "pq":
            charged(place, room, name, holds=("h1",), gang=3)
        charged(place, room, "free", on="n1", gang=3)
        place.remove_pod("b0")
        assert (taken(room), room.is_settling) == ([], False)
        assert taken(room, now=UNHELD_SECONDS + 5) == [], "its room is there, and a node keeps that of the others"
        place.remove_pod("b1")
        assert (room.take(now=100.0, count=ALL), room.is_settling) == ([], True)
        found = room.take(now=100 + FREE_SECONDS, count=1)
        assert {each.pod.name: admit.node_choice.nodes for each, admit in found} == {
            "p": ("n0",),
            "q": ("n0",),
            "free": ("n1",),
        }, "whole, though fewer were asked for"
        assert {admit.node_choice.mode for _, admit in found} == {Mode.AUTO}

    def test_why_its_domain_was_chosen_is_said_where_it_requires_one(self):
        racks = [
            replace(held(name, hold), labels={"rack": rack})
            for name, hold, rack in (("n0", "h1", "a"), ("n1", "h2", "b"))
        ]
        place = place_for(*racks, borrowers=0)
        room = AwaitedRoom(place)
        for name in "pq":
            charged(place, room, name, count=4, holds=("h2",), gang=2, domain=DomainRequest("rack", is_required=True))
        domains = {admit.node_choice.domain for _, admit in started(room)}
        (domain,) = domains
        assert (domain.name, domain.why) == ("rack=b", "8 GPUs were reserved there for 2 pods that start together")

    def test_a_pod_alone_does_not_wait_for_a_gang(self):
        place = self.place()
        room = AwaitedRoom(place)
        for name in "pq":
            charged(place, room, name, count=4, holds=("h1",), gang=2)
        charged(place, room, "alone", holds=("h1",))
        place.remove_pod("b0")
        assert taken(room) == ["alone"]

    def test_all_start_without_room_after_a_while_if_a_node_keeps_none_for_one_of_them(self):
        place = self.place()
        room = AwaitedRoom(place)
        charged(place, room, "p", holds=("h1",), gang=2)
        charged(place, room, "q", gang=2)
        assert taken(room, now=UNHELD_SECONDS - 1) == []
        assert taken(room, now=UNHELD_SECONDS) == ["p", "q"]

    def test_those_that_are_left_of_a_gang_start_alone_once_the_others_have(self):
        """A new leader goes on: the one before it had removed some of the gates."""
        place = self.place()
        room = AwaitedRoom(place)
        for name in "pq":
            charged(place, room, name, holds=("h1",), gang=3)
        place.set_pod(resident(1, uid="first", node="n1", gang="team-a/g"))
        place.remove_pod("b0")
        assert taken(room) == ["p"]

    @pytest.mark.parametrize("change", ["deleted", "gone"])
    def test_a_pod_that_is_deleted_meanwhile_does_not_hold_up_the_others(self, change):
        place = self.place()
        room = AwaitedRoom(place)
        charged(place, room, "p", holds=("h1",), gang=2)
        ended = charged(place, room, "q", on="n1", gang=2)
        place.remove_pod("b0")
        if change == "gone":
            place.remove_pod(ended.uid)
            assert taken(room) == ["p"]
        else:
            place.set_waiting(replace(ended, is_terminating=True))
            assert sorted(taken(room)) == ["p", "q"], "its release takes its charge back"


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    borrowed=st.integers(0, 8),
    ends=st.lists(st.integers(0, 7), max_size=8),
)
def test_no_more_start_on_a_node_than_it_has_room_for(sizes, borrowed, ends):
    place = place_for(held("n0", "h1"), borrowers=borrowed)
    room = AwaitedRoom(place)
    for number, count in enumerate(sizes):
        charged(place, room, f"p{number}", count=count, holds=("h1",))
    left, taken_by = set(range(borrowed)), 0
    for now, number in enumerate(ends):
        place.remove_pod(f"b{number}")
        left.discard(number)
        for found, _ in started(room, now=now):
            taken_by += sizes[int(found.pod.name[1:])]
            released = found.pod._replace(team_label="team-a", tier_label="guaranteed")
            place.set_pod(flight_of(released, place.charge_of(found.uid)).pod._replace(promised=NodeName("n0")))
        assert taken_by + len(left) <= 8 or not taken_by
