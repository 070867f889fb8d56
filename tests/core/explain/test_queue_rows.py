"""What each waiting pod waits for, judged on the present world, and who holds that."""

import time
from dataclasses import replace

import pytest

from tests.core.support.departments import department
from tests.core.support.make import demand, gpus, node, policy, requirement, resident, team, world
from tests.core.support.waiting import member, waiting
from webhook.core.admission.pod_rules import come_so_far
from webhook.core.explain import line_rows
from webhook.core.explain.line_rows import EarlierWaits, QueueReader, TeamWaits
from webhook.core.model.constraints import (
    HELD,
    NO_CONSTRAINTS,
    NODE_NAME_FIELD,
    Constraints,
    Effect,
    NodeTerm,
    Taint,
    Tier,
)
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Owner
from webhook.core.model.policy import Enforcement, OnLimit, OnNoRoom
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.quota.charges import flight_of
from webhook.core.starting.starts import AssumedStarts

QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}
HOUR = 3600
STARTS = "it starts within seconds"
NOW = 100 * HOUR


def line(*pods, teams=(), residents=(), nodes=2, **more):
    teams = teams or (team(guaranteed=4, limit_=8, **QUEUES), team("team-b", **QUEUES))
    place = world(
        policy(*teams, **more), nodes=[node(f"n{number}") for number in range(nodes)], residents=list(residents)
    )
    for pod in pods:
        place.set_waiting(pod)
    return place


def rows(place, name=None, **more):
    return QueueReader(place, **more).rows(name)


def held(count, uid="u1", *, created=NOW - HOUR, **more):
    return resident(count, uid=uid, node=more.pop("node", "n0"), created=created, **more)


def test_a_pod_behind_a_limit_says_what_no_node_has_either():
    holds = [held(7), held(1, "u2", node="n1"), held(7, "u3", node="n1", namespace="team-b")]
    place = line(waiting("a", 4), waiting("small", 1), residents=holds)
    found = {row.waiting.pod.name: row.cause for row in rows(place)}
    short = "4 GPUs must come back, and it needs nvidia.com/gpu 4 on one node, most free on one: 3"
    assert found["a"] == f"team team-a holds 8 of 8; {short}"
    assert found["small"] == "team team-a holds 8 of 8; next when 1 GPU comes back"


def test_a_limit_is_named_with_its_numbers_and_its_largest_holders():
    holds = [held(6, owner=Owner("Job", "train")), held(2, "u2", name="notebook")]
    [row] = rows(line(waiting("a", 3), residents=holds))
    assert row.code is Code.WAITS_FOR_LIMIT
    assert row.cause == "team team-a holds 8 of 8; next when 3 GPUs come back"
    assert [(each.name, each.gpus) for each in row.holders] == [
        ("team-a/Job/train", gpus(6)),
        ("team-a/Pod/notebook", gpus(2)),
    ]


def test_a_pod_that_only_borrowers_keep_out_says_so():
    home = department("left", guaranteed=8, limit_=8)
    teams = (team(guaranteed=4, departments=(home,)), team("team-b", guaranteed=4, departments=(home,)))
    holds = [held(2, name="train"), held(6, "u2", name="more", tier="preemptible")]
    [row] = rows(line(waiting("b", 2, namespace="team-b"), teams=teams, residents=holds, departments=(home,)))
    assert row.code is Code.WAITS_FOR_BORROWERS
    assert row.cause.startswith("department left holds 8 of 8, 6 of them borrowed; it is inside team team-b's")
    assert [each.name for each in row.holders] == ["team team-a"]


def test_a_users_limit_counts_the_users_pods():
    teams = (team(limit_=20, per_user=gpus(4), **QUEUES),)
    holds = [held(4, user="ann", name="mine"), held(4, "u2", user="bob")]
    [row] = rows(line(waiting("a", 2, user="ann"), teams=teams, residents=holds))
    assert row.cause.startswith("user ann in team team-a holds 4 of 4; next when 2 GPUs come back")
    assert [each.name for each in row.holders] == ["team-a/Pod/mine"]


def test_a_departments_limit_is_held_by_its_teams():
    lab = department("lab", limit_=8)
    teams = tuple(team(name, limit_=20, departments=(lab,), **QUEUES) for name in ("team-a", "team-b"))
    [row] = rows(line(waiting("a", 2), teams=teams, departments=(lab,), residents=[held(8, namespace="team-b")]))
    assert row.cause == "department lab holds 8 of 8; next when 2 GPUs come back"
    assert [each.name for each in row.holders] == ["team team-b"]


def test_the_guaranteed_share_of_a_pod_that_never_borrows():
    pod = waiting("a", 2, tier_label="guaranteed")
    [row] = rows(line(pod, residents=[held(4, name="mine")]))
    assert "holds 4 of 4 of its guaranteed share" in row.cause
    assert [each.name for each in row.holders] == ["team-a/Pod/mine"]


def test_room_is_held_by_the_largest_of_all_teams():
    full = [held(10, "u1", namespace="team-b", name="one"), held(10, "u2", namespace="team-b", node="n1", name="two")]
    [row] = rows(line(waiting("a", 2), residents=full))
    assert row.code is Code.WAITS_FOR_ROOM
    assert [each.name for each in row.holders] == ["team-b/Pod/one", "team-b/Pod/two"]


def test_a_pod_behind_one_that_claims_the_share_says_so():
    pods = [waiting("large", 4, priority=9, created=NOW - HOUR), waiting("small", 1, created=NOW)]
    full = held(6, "u2", namespace="team-b", name="other")
    there = line(*pods, residents=[held(2), full], nodes=1)
    large, small = rows(there, now=NOW)
    assert (large.waiting.pod.name, large.place.of_team) == ("large", 1)
    assert large.code is Code.WAITS_FOR_ROOM
    assert (small.place.of_team, small.cause) == (2, "1 pod of team team-a ahead of it")


def test_pods_that_others_hold_or_that_end_are_not_in_line():
    pods = [waiting("gated", foreign_gates=("example.com/a", "b"), created=1), waiting("ends", is_terminating=True)]
    ends, gated = rows(line(*pods))
    assert (gated.place, gated.code, gated.gates) == (None, Code.WAITS_FOR_GATE, ("example.com/a", "b"))
    assert gated.cause == "scheduling gate example.com/a, b of another controller"
    assert (ends.place, ends.cause) == (None, "it is being deleted")


def test_a_pod_that_cannot_be_read_any_more_says_so():
    [row] = rows(line(replace(waiting("a"), problem="spec.containers[0]: not a number")))
    assert (row.place, row.cause) == (None, "spec.containers[0]: not a number")


def test_pods_that_could_start_wait_for_those_ahead_of_them():
    first, second = rows(line(waiting("a", created=1), waiting("b", created=2)))
    assert (first.cause, second.cause) == (STARTS, "1 pod of team team-a ahead of it")


class TestTheFirstOfEachTeam:
    """What is said to start now is what the leader's next pass starts."""

    def place(self, pinned, **asks):
        lab = department("lab", guaranteed=8, limit_=8)
        teams = tuple(team(name, guaranteed=4, limit_=8, departments=(lab,), **QUEUES) for name in ("team-a", "team-b"))
        full = held(10, "full", namespace="team-c", node="n1")
        pods = [waiting("head", 3, constraints=pinned), waiting("mine", 1, namespace="team-b", created=1, **asks)]
        mine = [held(2, "b", namespace="team-b"), *(held(1, f"a{n}", tier="preemptible") for n in range(4))]
        teams += (team("team-c"),)
        return line(*pods, teams=teams, departments=(lab,), residents=[full, *mine])

    def check(self, place, want):
        head, mine = rows(place, now=NOW)
        assert (head.waiting.pod.name, head.place.overall, head.code) == ("head", 1, Code.WAITS_FOR_LIMIT)
        assert (mine.place.of_team, mine.cause) == (1, want)
        started = [turn.waiting.pod.name for turn in AssumedStarts(place).due(now=NOW, count=9)]
        assert started == (["mine"] if want == STARTS else [])

    @pytest.mark.parametrize("node_name", ["n0", "n1"])
    def test_one_inside_its_share_starts_whatever_head_of_another_team_is_ahead(self, node_name):
        pinned = Constraints(terms=(NodeTerm(fields=(requirement(NODE_NAME_FIELD, "In", node_name),)),))
        self.check(self.place(pinned), STARTS)

    def test_one_that_borrows_waits_for_a_head_with_a_place_and_starts_ahead_of_one_without(self):
        borrows = {"tier_label": "preemptible"}
        self.check(self.place(NO_CONSTRAINTS, **borrows), "pods of other teams wait ahead of it")
        nowhere = Constraints(terms=(NodeTerm(fields=(requirement(NODE_NAME_FIELD, "In", "n1"),)),))
        self.check(self.place(nowhere, **borrows), STARTS)

    def test_the_world_is_as_before(self):
        place = self.place(NO_CONSTRAINTS)
        heard = []
        place.waiting.on_change = heard.append
        place.waiting.wanted = frozenset({"n7"})
        before = [(name, usage.total) for name, usage in place.usage_by_team().items()]
        QueueReader(place)
        place.waiting.on_change("x")
        assert (heard, place.waiting.wanted) == (["x"], frozenset({"n7"}))
        assert [(name, usage.total) for name, usage in place.usage_by_team().items()] == before
        assert not any(place.is_assumed(pod.uid) for pod in place.waiting.all())

    def test_a_whole_gang_that_starts_says_so(self):
        found = rows(line(member("m0", size=2), member("m1", size=2)))
        assert {row.cause for row in found} == {STARTS}


@pytest.mark.parametrize(
    ("written", "want"),
    [
        (come_so_far("g", 1, 4), "2 of 4 members of gang g have come"),
        (come_so_far("g", 1, 0), "2 members of gang g have come"),
        (
            Statement("{members} within {timeout:duration}", {"members": come_so_far("g", 1, 4), "timeout": 300}),
            "2 of 4 members of gang g have come within 5m",
        ),
        (Statement("gang {gang} needs {gpus:GPUs} together", {"gang": "g", "gpus": gpus(40)}), "gang g needs 40 GPUs"),
        (Statement("{come} of my own words", {"come": "9", "gang": "g"}), "9 of my own words"),
    ],
)
def test_the_members_of_a_gang_that_have_come_are_counted_whatever_is_written_on_a_pod(written, want):
    members = [
        member("a", size=4, text="waits: as it was", reason=Reason(Code.WAITS_FOR_GANG, *written)),
        member("b", size=4),
        member("c", size=4, foreign_gates=("x",)),
    ]
    found = rows(line(*members))
    [row] = [each for each in found if each.waiting.pod.name == "a"]
    assert row.code is Code.WAITS_FOR_GANG
    assert row.cause.startswith(want)


@pytest.mark.parametrize("is_charged", [True, False], ids=["by the leader", "without the ledgers in view"])
def test_a_charged_pod_for_which_a_node_keeps_room_waits_for_that(is_charged):
    found, behind = waiting("a", 1, holds=("old", "h1")), waiting("b", 1, created=1, holds=("old",))
    there = line(found, behind)
    there.set_node(node("n0", taints=(Taint(HELD, Effect.NO_SCHEDULE, "h1"),)))
    if is_charged:
        there.assume(flight_of(found.pod, Charge(found.team, Tier.GUARANTEED, found.pod.demand.gpus)))
    causes = {row.waiting.pod.name: row.cause for row in rows(there)}
    assert causes["a"] == "borrowed GPUs are reclaimed for it, and it starts once they are free"
    assert causes["b"] != causes["a"], "no node keeps room for it any more"


def test_all_of_a_gang_wait_for_the_room_that_is_taken_back_for_some_of_them():
    held_back, free = member("a", size=2, holds=("h1",)), member("b", size=2)
    there = line(held_back, free, member("c", "other"))
    there.set_node(node("n0", taints=(Taint(HELD, Effect.NO_SCHEDULE, "h1"),)))
    for each in (held_back, free):
        there.assume(flight_of(each.pod, Charge(each.team, Tier.GUARANTEED, each.pod.demand.gpus)))
    causes = {row.waiting.pod.name: row.cause for row in rows(there)}
    assert causes["a"] == causes["b"]
    assert causes["a"] == "borrowed GPUs are reclaimed for its gang, which starts once all of them are free"
    assert causes["c"] != causes["a"]


def test_where_policy_is_not_enforced_every_pod_is_about_to_be_released():
    [row] = rows(line(waiting("a", 30), enforce=Enforcement.SHADOW))
    assert row.cause == "it is about to be released"


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ({"text": "waits: no node; 3rd in the queue", "reason": Reason(Code.WAITS_FOR_ROOM, "no node")}, "no node"),
        ({"text": "waits: what an earlier version wrote"}, "waits: what an earlier version wrote"),
        ({}, "not known"),
    ],
)
def test_where_room_is_not_known_what_is_written_on_the_pod_says_why_it_waits(written, want):
    [row] = rows(line(waiting("a", **written)), is_room_known=False)
    assert row.cause == want


def test_a_team_is_shown_alone_with_its_places_among_all():
    place = line(waiting("a", created=2), waiting("b", namespace="team-b", created=1))
    [row] = rows(place, "team-a")
    assert (row.waiting.pod.name, row.place.of_team) == ("a", 1)


def test_pods_in_line_have_the_waits_of_earlier_ones_like_them():
    waits = EarlierWaits([TeamWaits("team-a", gpus(3), (60, 240, 120)), TeamWaits("team-b", gpus(3), (5,))])
    pods = [waiting("a", 3), waiting("small", 1, created=1), waiting("gated", 3, foreign_gates=("x",), created=2)]
    first, small, gated = rows(line(*pods, residents=[held(8)]), waits=waits)
    assert first.earlier == (3, 60, 240)
    assert (small.earlier, gated.earlier) == (None, None), "of this size none is known; it is not queued"


def test_of_many_kinds_of_pods_only_so_many_are_judged(monkeypatch):
    monkeypatch.setattr(line_rows, "MAX_JUDGED", 3)
    pods = [waiting(f"p{number}", user=f"u{number}", text="written", created=number) for number in range(9)]
    found = rows(line(*pods, residents=[held(8)]))
    assert sum(row.cause.startswith("team team-a holds") for row in found) == 3
    assert {row.cause for row in found[3:]} == {"written"}


@pytest.mark.slow
def test_the_line_of_ten_thousand_different_pods_on_five_hundred_full_nodes_takes_seconds():
    full = [held(10, f"u{number}", namespace="team-b", node=f"n{number}", tier="preemptible") for number in range(500)]
    teams = (team(guaranteed=0, limit_=None, **QUEUES), team("team-b", limit_=None, **QUEUES))
    place = line(teams=teams, residents=full, nodes=500)
    for number in range(10_000):
        needs = demand(1 + number % 8, cpu=1000 + number)
        place.set_waiting(waiting(f"p{number}", user=f"u{number}", created=number, demand=needs))
    began = time.process_time()
    assert len(rows(place)) == 10_000
    assert time.process_time() - began < 15


def test_a_pod_for_which_room_is_taken_back_says_so():
    borrowed = [held(8, f"b{n}", node=f"n{n}", namespace="team-b", tier="preemptible") for n in range(2)]
    [row] = rows(line(waiting("a", 4), residents=borrowed))
    assert row.cause == "borrowed GPUs are reclaimed for it, with one of the next releases"
    assert row.needs_evictor
    [free] = rows(line(waiting("a", 4)))
    assert not free.needs_evictor
