"""Which controllers are asked to try again: whose pods would be admitted, few at once, ever less often."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import pod, policy, resident, team, world
from webhook.core.admission.refused_owners import (
    AT_ONCE,
    FIRST_REST_SECONDS,
    FORGET_SECONDS,
    KEPT,
    KEPT_OF_NAMESPACE,
    LONGEST_REST_SECONDS,
    PROMISED_SECONDS,
    MissingPods,
    RefusedOwner,
    Retries,
)
from webhook.core.reclaim.reclaim_pod import Controller


def owner(name="web", namespace="team-a"):
    return RefusedOwner(namespace, Controller("apps/v1", "ReplicaSet", name, f"uid-{name}"))


def full(limit=8):
    """A team whose limit is used up by one pod."""
    return world(policy(team(limit_=limit)), residents=[resident(limit, uid="holder", node="n0")])


def known(retries, *names, gpus=1, count=1, now=0.0):
    for name in names:
        retries.note(owner(name), now=now)
        retries.learn(owner(name), [MissingPods(pod(gpus), count)])


def test_nobody_is_asked_while_the_limit_is_used_up_and_the_owner_is_once_there_is_room():
    retries, place = Retries(), full()
    known(retries, "web")
    assert retries.due(place, now=1) == []
    place.remove_pod("holder")
    assert retries.due(place, now=2) == [owner()]
    assert retries.due(place, now=3) == []


def test_who_waits_longest_comes_first_and_no_more_come_than_there_is_room_for():
    retries, place = Retries(), full(limit=8)
    known(retries, "first", gpus=4, count=1)
    known(retries, "second", gpus=2, count=2, now=1)
    known(retries, "third", gpus=1, count=1, now=2)
    place.remove_pod("holder")
    assert retries.due(place, now=3) == [owner("first"), owner("second")]
    assert retries.due(place, now=3 + PROMISED_SECONDS + 1) == [owner("third")]


def test_an_owner_that_is_refused_again_rests_twice_as_long_each_time():
    retries, place, now, rests = Retries(), world(), 0.0, []
    known(retries, "web")
    assert retries.due(place, now=now) == [owner()]
    for _ in range(8):
        turn, now = now, now + 1
        known(retries, "web", now=now)
        while not retries.due(place, now=now):
            now += 1
        rests.append(now - turn)
    assert rests[:3] == [FIRST_REST_SECONDS, 2 * FIRST_REST_SECONDS, 4 * FIRST_REST_SECONDS]
    assert rests[-1] == LONGEST_REST_SECONDS


def test_an_owner_that_is_not_refused_again_is_left_alone():
    retries, place = Retries(), world()
    known(retries, "web")
    assert retries.due(place, now=0) == [owner()]
    assert retries.unread(now=FORGET_SECONDS - 1, count=9) == []
    assert retries.due(place, now=FORGET_SECONDS - 1) == []
    retries.unread(now=FORGET_SECONDS, count=9)
    assert len(retries) == 0


def test_pods_are_read_again_after_a_further_refusal():
    retries = Retries()
    retries.note(owner(), now=0)
    assert retries.unread(now=0, count=9) == [owner()]
    retries.learn(owner(), [MissingPods(pod(1), 1)])
    assert retries.unread(now=1, count=9) == []
    retries.due(world(), now=1)
    retries.note(owner(), now=2)
    assert retries.unread(now=2, count=9) == []
    assert retries.unread(now=1 + FIRST_REST_SECONDS, count=9) == [owner()]


@pytest.mark.parametrize("pods", [[], [MissingPods(pod(1), 0)]], ids=["no pods", "none is missing"])
def test_an_owner_that_misses_no_pod_is_forgotten(pods):
    retries = Retries()
    retries.note(owner(), now=0)
    retries.learn(owner(), pods)
    assert len(retries) == 0


def test_what_a_namespace_fills_takes_the_place_of_its_own_oldest():
    retries = Retries()
    retries.note(owner("kept", "team-b"), now=0)
    for number in range(KEPT_OF_NAMESPACE * 3):
        retries.note(owner(str(number)), now=number)
    assert len(retries) == KEPT_OF_NAMESPACE + 1
    left = retries.unread(now=1, count=KEPT)
    assert owner("kept", "team-b") in left
    assert owner("0") not in left


def test_all_namespaces_together_are_bounded():
    retries = Retries()
    for number in range(KEPT + 50):
        retries.note(owner("web", f"team-{number}"), now=number)
    assert len(retries) == KEPT


def test_few_have_their_turn_at_once():
    retries = Retries()
    known(retries, *map(str, range(AT_ONCE * 2)))
    assert len(retries.due(world(policy(team(limit_=None))), now=1)) == AT_ONCE


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), max_size=8), st.integers(0, 12))
def test_no_more_is_promised_than_a_limit_has_room_for(wanted, used):
    place = world(policy(team(limit_=12)), residents=[resident(used, uid="u", node="n0")] if used else [])
    retries = Retries()
    for number, (gpus, count) in enumerate(wanted):
        known(retries, str(number), gpus=gpus, count=count, now=number)
    turns = retries.due(place, now=99)
    first = [wanted[int(each.controller.name)][0] for each in turns]
    before = [gpus * count for gpus, count in (wanted[int(each.controller.name)] for each in turns)]
    for place_, gpus in enumerate(first):
        assert used + sum(before[:place_]) + gpus <= 12
