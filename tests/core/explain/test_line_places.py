"""Places in line: the fair order if each pod starts in its turn."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.departments import department
from tests.core.support.make import node, policy, resident, team, world
from tests.core.support.waiting import waiting
from tests.examples import examples
from webhook.core.explain.line_places import places
from webhook.core.line.entries import Fits, Never, NoRoom, OverLimit, Paced
from webhook.core.line.line import TEAM, USER, WaitingEntries
from webhook.core.line.order import Order, Skipped

BOTH = (team(guaranteed=2), team("team-b", guaranteed=2))


def order(place):
    found = places(place)
    return [uid.removeprefix("uid-") for uid in sorted(found, key=lambda uid: found[uid].overall)]


def line(*pods, teams=BOTH, residents=(), **more):
    place = world(policy(*teams, **more), nodes=[node()], residents=list(residents))
    for pod in pods:
        place.set_waiting(pod)
    return place


def test_teams_take_turns_as_each_start_is_charged():
    ours = [waiting(f"a{number}", created=number) for number in range(3)]
    theirs = [waiting(f"b{number}", namespace="team-b", created=10 + number) for number in range(3)]
    assert order(line(*ours, *theirs)) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_place_counts_pods_in_the_team_and_overall():
    place = line(waiting("a0", 2, created=1), waiting("a1", created=2), waiting("b0", 1, namespace="team-b", created=3))
    found = places(place)
    assert (found["uid-a1"].of_team, found["uid-a1"].overall) == (2, 3)


def test_priority_goes_first_then_the_user_who_holds_least_then_age():
    holds = resident(2, user="ann")
    pods = [
        waiting("ann", user="ann", created=1),
        waiting("bob-1", user="bob", created=2),
        waiting("bob-2", user="bob", created=3),
        waiting("urgent", user="ann", priority=9, created=9),
    ]
    assert order(line(*pods, residents=[holds])) == ["urgent", "bob-1", "bob-2", "ann"]


def test_pods_of_unknown_users_take_turns_with_those_of_a_user():
    pods = [waiting(f"job-{n}", created=n) for n in range(3)] + [waiting("ann", user="ann", created=9)]
    assert order(line(*pods)) == ["job-0", "ann", "job-1", "job-2"]
    assert order(line(*pods, residents=[resident(2)])) == ["ann", "job-0", "job-1", "job-2"]


def test_what_a_department_gives_one_team_counts_for_its_other_teams():
    lab = department("lab", guaranteed=0)
    teams = (
        team("team-a", guaranteed=0, departments=(lab,)),
        team("team-b", guaranteed=0, departments=(lab,)),
        team("team-c", guaranteed=0),
    )
    pods = [waiting(f"{name}{turn}", namespace=f"team-{name}", created=turn) for name in "abc" for turn in range(2)]
    assert order(line(*pods, teams=teams, departments=(lab,))) == ["c0", "a0", "c1", "b0", "a1", "b1"]


def test_pods_that_are_not_to_start_have_no_place():
    place = line(waiting("held", foreign_gates=("example.com/gate",)), waiting("ends", is_terminating=True))
    assert places(place) == {}


def test_a_small_pod_inside_the_share_goes_before_a_large_one_of_its_team_that_would_borrow():
    pods = [waiting("big", 8, created=1), waiting("small", 1, created=2), waiting("b", namespace="team-b", created=0)]
    assert order(line(*pods, residents=[resident(2, namespace="team-b")])) == ["small", "b", "big"]


def claimed(verdict, *, waited=600, **more):
    """The order where a large pod of high priority waits for the share that small ones of its team would use up."""
    pods = [
        waiting("big", 8, priority=9, created=0),
        *(waiting(f"small-{n}", created=1 + n, **more) for n in range(2)),
        waiting("b", 2, namespace="team-b", created=0),
    ]
    teams = (team(guaranteed=8, limit_=8), team("team-b", guaranteed=2))
    there = line(*pods, teams=teams, residents=[resident(6)])
    found = places(there, lambda uid: verdict if uid == "uid-big" else Fits(), now=waited)
    return [uid.removeprefix("uid-") for uid in sorted(found, key=lambda uid: found[uid].overall)]


SMALL_FIRST = ["b", "small-0", "small-1", "big"]


@pytest.mark.parametrize("verdict", [NoRoom(), OverLimit((TEAM, "team-a"))], ids=["room", "limit of the team"])
def test_a_pod_that_has_waited_for_long_claims_its_share(verdict):
    assert claimed(verdict) == ["b", "big", "small-0", "small-1"]
    assert claimed(verdict, waited=599) == SMALL_FIRST
    assert claimed(verdict, priority=9) == SMALL_FIRST, "of equals the small ones fit"


@pytest.mark.parametrize("verdict", [OverLimit((USER, "team-a", "ann")), Never(), Paced(), None])
def test_a_pod_that_waits_for_something_else_claims_nothing(verdict):
    assert claimed(verdict) == SMALL_FIRST


def test_a_pod_that_its_share_could_never_have_claims_nothing():
    pods = [waiting("big", 9, priority=9, created=0), waiting("small", created=1)]
    there = line(*pods, teams=(team(guaranteed=8, limit_=20),))
    assert places(there, lambda _: NoRoom(), now=600)["uid-small"].overall == 1


@examples(50)
@given(st.lists(st.tuples(st.sampled_from(["team-a", "team-b"]), st.integers(1, 4), st.integers(0, 5)), max_size=8))
def test_the_first_of_pods_of_different_sizes_is_that_of_the_queue(pods):
    place = line(
        *(waiting(f"p{i}", size, namespace=name, created=created) for i, (name, size, created) in enumerate(pods))
    )
    view = WaitingEntries(place)
    view.sync()
    kept = Order(view.queue, view)
    kept.look()
    first = next(iter(kept.walk(Skipped())), None)
    assert order(place)[:1] == ([] if first is None else [first.head.entry.pods[0].name])


PODS = st.lists(
    st.tuples(st.sampled_from(["team-a", "team-b"]), st.integers(0, 5), st.integers(0, 2), st.sampled_from("xyz")),
    max_size=12,
)


@examples(100)
@given(PODS)
def test_the_first_place_has_the_pod_that_the_queue_would_release_first(pods):
    place = line(
        *(
            waiting(f"p{number}", namespace=name, created=created, priority=priority, user=user)
            for number, (name, created, priority, user) in enumerate(pods)
        )
    )
    view = WaitingEntries(place)
    view.sync()
    kept = Order(view.queue, view)
    kept.look()
    first = next(iter(kept.walk(Skipped())), None)
    assert order(place)[:1] == ([] if first is None else [first.head.entry.pods[0].name])
    assert sorted(each.overall for each in places(place).values()) == list(range(1, len(pods) + 1))


@pytest.mark.slow
def test_ten_thousand_pods_of_ten_thousand_users_take_seconds():
    place = line()
    for number in range(10_000):
        place.set_waiting(waiting(f"p{number}", 1 + number % 7, user=f"u{number}", created=number))
    began = time.process_time()
    assert len(places(place)) == 10_000
    assert time.process_time() - began < 10
