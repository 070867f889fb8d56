"""Which controllers are triggered to retry: those whose pods would be admitted, few at once, with growing pauses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import pod, policy, resident, team, world
from webhook.core.admission.refused_owners import (
    FIRST_PAUSE_SECONDS,
    FORGET_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MAX_OWNERS,
    MAX_OWNERS_PER_NAMESPACE,
    OWNERS_PER_RUN,
    RESERVED_SECONDS,
    MissingPods,
    RefusedOwner,
    Retries,
)
from webhook.core.reclaim.reclaim_pods import Controller


def owner(name="web", namespace="team-a"):
    return RefusedOwner(namespace, Controller("apps/v1", "ReplicaSet", name, f"uid-{name}"))


def full(limit=8):
    """A team whose limit is used up by one pod."""
    return world(policy(team(limit_=limit)), residents=[resident(limit, uid="holder", node="n0")])


def known(retries, *names, gpus=1, count=1, now=0.0):
    for name in names:
        retries.note(owner(name), now=now)
        retries.learn(owner(name), [MissingPods(pod(gpus), count)])


def test_an_owner_is_triggered_once_there_is_room_and_not_before():
    retries, place = Retries(), full()
    known(retries, "web")
    assert retries.due(place, now=1) == []
    place.remove_pod("holder")
    assert retries.due(place, now=2) == [owner()]
    assert retries.due(place, now=3) == []


def test_the_longest_waiting_come_first_and_only_as_many_as_there_is_room_for():
    retries, place = Retries(), full(limit=8)
    known(retries, "first", gpus=4, count=1)
    known(retries, "second", gpus=2, count=2, now=1)
    known(retries, "third", gpus=1, count=1, now=2)
    place.remove_pod("holder")
    assert retries.due(place, now=3) == [owner("first"), owner("second")]
    assert retries.due(place, now=3 + RESERVED_SECONDS + 1) == [owner("third")]


def test_what_owners_of_one_team_were_triggered_for_counts_for_the_other_teams_of_its_department():
    retries = Retries()
    place = world(tree_policy(left=department("left", "top", limit_=4)))
    known(retries, "a", gpus=3)
    retries.note(owner("b", "team-b"), now=1.0)
    retries.learn(owner("b", "team-b"), [MissingPods(pod(3, namespace="team-b"), 1)])
    assert retries.due(place, now=2) == [owner("a")]
    assert retries.due(place, now=2 + RESERVED_SECONDS + 1) == [owner("b", "team-b")]


def test_the_pause_of_an_owner_doubles_with_each_refusal():
    retries, place, now, rests = Retries(), world(), 0.0, []
    known(retries, "web")
    assert retries.due(place, now=now) == [owner()]
    for _ in range(8):
        turn, now = now, now + 1
        known(retries, "web", now=now)
        while not retries.due(place, now=now):
            now += 1
        rests.append(now - turn)
    assert rests[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert rests[-1] == LONGEST_PAUSE_SECONDS


def test_an_owner_that_is_not_refused_again_is_not_triggered():
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
    assert retries.unread(now=1 + FIRST_PAUSE_SECONDS, count=9) == [owner()]


@pytest.mark.parametrize("pods", [[], [MissingPods(pod(1), 0)]], ids=["no pods", "none is missing"])
def test_an_owner_without_missing_pods_is_dropped(pods):
    retries = Retries()
    retries.note(owner(), now=0)
    retries.learn(owner(), pods)
    assert len(retries) == 0


def test_a_full_namespace_replaces_its_own_oldest_owner():
    retries = Retries()
    retries.note(owner("kept", "team-b"), now=0)
    for number in range(MAX_OWNERS_PER_NAMESPACE * 3):
        retries.note(owner(str(number)), now=number)
    assert len(retries) == MAX_OWNERS_PER_NAMESPACE + 1
    left = retries.unread(now=1, count=MAX_OWNERS)
    assert owner("kept", "team-b") in left
    assert owner("0") not in left


def test_all_namespaces_together_are_bounded():
    retries = Retries()
    for number in range(MAX_OWNERS + 50):
        retries.note(owner("web", f"team-{number}"), now=number)
    assert len(retries) == MAX_OWNERS


def test_few_owners_are_triggered_at_once():
    retries = Retries()
    known(retries, *map(str, range(OWNERS_PER_RUN * 2)))
    assert len(retries.due(world(policy(team(limit_=None))), now=1)) == OWNERS_PER_RUN


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), max_size=8), st.integers(0, 12))
def test_no_more_is_reserved_than_a_limit_has_room_for(wanted, used):
    place = world(policy(team(limit_=12)), residents=[resident(used, uid="u", node="n0")] if used else [])
    retries = Retries()
    for number, (gpus, count) in enumerate(wanted):
        known(retries, str(number), gpus=gpus, count=count, now=number)
    turns = retries.due(place, now=99)
    first = [wanted[int(each.controller.name)][0] for each in turns]
    before = [gpus * count for gpus, count in (wanted[int(each.controller.name)] for each in turns)]
    for place_, gpus in enumerate(first):
        assert used + sum(before[:place_]) + gpus <= 12
