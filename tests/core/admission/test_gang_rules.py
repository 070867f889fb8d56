"""Pods of a gang at the door: who waits for the others, and which gangs are refused."""

from dataclasses import replace

import pytest

from tests.core.support.make import ALICE, gpus, node, policy, resident, team, world
from tests.core.support.outcomes import codes, said
from tests.core.support.waiting import confirmed, member
from webhook.core.admission.admission import admit
from webhook.core.admission.assessment import assess
from webhook.core.admission.pod_rules import come_so_far, limits_for, never_reason
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import GangId
from webhook.core.model.constraints import MAX_MEMBERS
from webhook.core.model.decision import Admit, Deny, Queue
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Mode, OnLimit, OnNoRoom, PlacementRules
from webhook.core.model.reasons import Code

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def place_for(residents=(), **shares):
    return world(policy(team(**{**LIMITED, **shares})), residents=list(residents))


def asked(place, name="x", count=1, **more):
    return admit(member(name, "g", count, **more).pod, ALICE, place)


def test_a_member_waits_uncharged_until_its_gang_is_judged():
    place = place_for()
    decision = asked(place, size=4)
    assert isinstance(decision, Queue)
    assert said(decision.reason) == (Code.WAITS_FOR_GANG, "waits: 1 of 4 members of gang g have come; 1st in the queue")
    place.set_waiting(member("first"))
    assert asked(place).reason.text == "waits: 2 members of gang g have come; 2nd in the queue"


def test_a_size_that_is_not_that_of_the_others_is_a_warning_and_the_largest_counts():
    place = place_for()
    place.set_waiting(member("first", size=4))
    decision = asked(place, size=2)
    assert decision.reason.text.startswith("waits: 2 of 4 members of gang g have come")
    want = "pods of gang g declare sizes from 2 to 4: the largest counts"
    assert [said(each) for each in decision.warnings] == [(Code.GANG_IGNORED, want)]
    for size in (4, 0):
        assert asked(place, size=size).warnings == ()


def test_what_is_ignored_of_what_a_pod_says_about_its_gang_is_a_warning():
    place, problem = place_for(), "annotation size 'many' is no number: pods that come together are the gang"
    alone = member("x").pod._replace(gang=None, gang_problem=problem)
    for pod_ in (member("x").pod._replace(gang_problem=problem), alone):
        assert [said(each) for each in admit(pod_, ALICE, place).warnings] == [(Code.GANG_IGNORED, problem)]


def test_the_final_object_of_a_member_waits_too():
    place = place_for()
    pod_ = member("x")
    queue = admit(pod_.pod, ALICE, place)
    assert verify(confirmed(pod_.pod, queue), ALICE, place).reason.code is Code.WAITS_FOR_GANG


def test_without_a_queue_only_the_annotation_makes_a_gang_wait():
    place = place_for(on_limit=OnLimit.REJECT, on_no_room=OnNoRoom.WAIT)
    assert isinstance(asked(place), Admit)
    assert isinstance(asked(place, is_requested=True), Queue)


def test_members_of_a_gang_that_has_started_are_decided_alone():
    place = place_for([resident(1, node="n0", gang=GangId("team-a/g"))])
    assert isinstance(asked(place, size=4), Admit)


def test_a_pod_that_another_places_never_waits_for_its_gang():
    assert not isinstance(asked(place_for(), handling=Handling.FOREIGN_SCHEDULER), Queue)


def test_a_member_that_can_never_start_is_refused_at_once():
    assert codes(asked(place_for(limit_=8, guaranteed=8), count=9)) == [Code.TEAM_LIMIT_EXCEEDED]


def test_a_gang_above_the_limit_is_refused_with_its_sum():
    place = place_for(limit_=8, guaranteed=8)
    for number in range(2):
        place.set_waiting(member(f"m{number}", count=4, size=3))
    decision = asked(place, count=4, size=3)
    assert codes(decision) == [Code.TEAM_LIMIT_EXCEEDED]
    want = "gang g needs 12 GPUs together, and the limit of team team-a is 8: it can never start whole; make it smaller"
    assert decision.reasons[0].text == want
    assert isinstance(asked(place, count=4, size=2), Queue), "the third of two is not needed for the gang to start"
    assert isinstance(asked(place, count=4), Queue), "those that came would pass for all of a gang of unknown size"


@pytest.mark.parametrize("size", [MAX_MEMBERS + 1, 999_999])
def test_a_gang_of_more_members_than_start_together_is_refused(size):
    decision = asked(place_for(), size=size)
    assert isinstance(decision, Deny)
    assert f"has {size:,} members; at most 500 start together" in decision.reasons[0].text


def test_limits_are_compared_with_the_sum():
    place = place_for([resident(4, node="n0")], limit_=8, guaranteed=8)
    assessed = assess(member("x").pod, ALICE, place)
    assert [each.code for each in limits_for(assessed, gpus(5))] == [Code.TEAM_LIMIT_EXCEEDED]
    assert limits_for(assessed, gpus(4)) == []
    assert never_reason(assessed, "g", gpus(8)) is None
    assert never_reason(assessed, "g", gpus(9)).code is Code.TEAM_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("numbers", "want"),
    [
        ((3, 4), "3 of 4 members of gang g have come"),
        ((1, 0), "1 member of gang g has come"),
        ((2, 0), "2 members of gang g have come"),
    ],
)
def test_the_text_says_how_many_have_come(numbers, want):
    assert come_so_far("g", *numbers).text == want


def test_a_gang_that_the_nodes_never_hold_is_refused_with_the_pod_that_makes_it_so():
    place = world(policy(team(**LIMITED)), nodes=[node("n0"), node("n1")])
    for number in range(2):
        place.set_waiting(member(f"m{number}", count=8, size=3))
    decision = asked(place, count=8, size=3)
    assert codes(decision) == [Code.NEVER_FITS]
    want = "gang g has 3 pods, and the nodes that they may use hold 2 of them when empty: it can never start whole"
    assert decision.reasons[0].text == f"{want}; make it smaller"
    assert isinstance(asked(place, count=8), Queue), "of an unknown size it may be two gangs, one after the other"
    place.set_policy(replace(place.policy, placement=PlacementRules(mode=Mode.OFF)))
    assert isinstance(asked(place, count=8, size=3), Queue), "as of a pod alone, that is not certain"
    place.set_policy(replace(place.policy, placement=PlacementRules()))
    place.set_node(node("n2"))
    assert isinstance(asked(place, count=8, size=3), Queue)
