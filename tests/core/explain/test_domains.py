"""The domains of a gang, for people who ask why it waits."""

import pytest

from tests.core.support.make import ALICE, pod, resident
from tests.core.support.racks import A_RACK, ONE_RACK, gang, racks
from webhook.core.admission.assessment import assess
from webhook.core.admission.domain_rules import MAX_SHOWN, domain_steps
from webhook.core.explain.explanation import explain
from webhook.core.model.constraints import ANYWHERE


def steps(place, members, *, waiting=None):
    for each in members[:-1] if waiting is None else waiting:
        place.set_waiting(each)
    return domain_steps(assess(members[-1].pod, ALICE, place), place)


def test_each_rack_says_how_many_of_the_waiting_pods_it_has_room_for():
    found = steps(racks(a=[8, 8, 8, 8], b=[8, 8], c=[8, 8, 8]), gang(3))
    (level,) = found.levels
    assert (found.pods, found.required) == (3, "rack")
    assert [(room.name, room.holds) for room in level.rooms] == [("rack=c", 3), ("rack=a", 4), ("rack=b", 2)]
    assert (level.key, level.number, level.enough) == ("rack", 3, 2)


def test_the_pod_in_question_counts_once():
    members = gang(3)
    assert steps(racks(a=[8]), members, waiting=members).pods == 3


def test_a_preference_shows_the_larger_levels_too():
    found = steps(racks(levels=("zone", "rack"), r0a=[8], r1a=[8]), gang(2, domain=A_RACK))
    assert ([level.key for level in found.levels], found.required) == (["rack", "zone"], "")


@pytest.mark.parametrize("domain", [None, ANYWHERE])
def test_a_gang_that_asks_for_none_has_none(domain):
    assert steps(racks(a=[8]), gang(2, domain=domain)) is None


def test_a_pod_alone_and_a_gang_that_has_started_have_none():
    place = racks(a=[8])
    assert domain_steps(assess(pod(1), ALICE, place), place) is None
    members = gang(2)
    place.set_pod(resident(1, node="n00", gang=members[0].pod.gang.id))
    assert steps(place, members, waiting=[]) is None


def test_of_many_domains_some_are_shown():
    place = racks(**{f"r{number}x": [8] for number in range(30)})
    (level,) = steps(place, gang(1)).levels
    assert (len(level.rooms), level.number) == (MAX_SHOWN, 30)


def test_an_explanation_has_them():
    place = racks(a=[8])
    (member,) = gang(1, domain=ONE_RACK)
    assert explain(member.pod, ALICE, place).domains.required == "rack"
