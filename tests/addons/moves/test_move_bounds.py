"""The bounds of policy on plans, whatever the cluster."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.addons.moves.made import clusters, movable, target
from tests.core.support.scenes import NOW
from webhook.addons.moves.candidates import (
    HOUR_SECONDS,
    Bound,
    Move,
    Moves,
    NotPlanned,
    PastMove,
    Room,
    bound_on,
    moved_pods,
    moves_left,
    recent,
)
from webhook.addons.moves.targets import Movement, make_room, separate_plans
from webhook.core.model.amounts import ONE_GPU, UNLIMITED, NodeName
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.model.policy_addons import DefragmentRules

RULES = DefragmentRules(on_demand=True, lost_seconds_per_gpu=100)


def room(*lost_seconds, since=NOW - 1000, gpus=4):
    moves = [Move(movable(f"p{n}"), NodeName("n1"), seconds * ONE_GPU) for n, seconds in enumerate(lost_seconds)]
    return Room((Moves(target(gpus, since=since), NodeName("n0"), tuple(moves)),))


@pytest.mark.parametrize(
    ("plan", "left", "want"),
    [
        (room(100, 300), 2, None),
        (room(100, 300), 1, Bound.MOVES_PER_HOUR),
        (room(401), 9, Bound.LOST_PER_GPU),
        (room(400, since=NOW - 99), 9, Bound.NOT_WORTH_IT),
        (room(400, since=NOW - 100), 9, None),
        (room(400, since=0), 9, None),
    ],
    ids=["inside all", "moves", "lost work", "wait", "wait, just so", "no pod waits"],
)
def test_a_plan_is_bound_by_moves_lost_work_and_the_wait(plan, left, want):
    assert bound_on(plan, RULES, now=NOW, left=left) is want


def test_lost_work_may_be_unlimited():
    rules = replace(RULES, lost_seconds_per_gpu=UNLIMITED)
    assert bound_on(room(10**9, since=0), rules, now=NOW, left=9) is None


def test_moves_count_for_an_hour_also_those_of_a_clock_ahead():
    past = [PastMove(NOW - HOUR_SECONDS, "old"), PastMove(NOW - HOUR_SECONDS + 1, "w"), PastMove(NOW + 50, "w")]
    assert [each.workload for each in recent(past, now=NOW)] == ["w", "w"]
    assert moved_pods(past, now=NOW) == {"w": 2}
    assert moves_left(past, replace(RULES, moves_per_hour=3), now=NOW) == 1
    assert moves_left(past, replace(RULES, moves_per_hour=1), now=NOW) == 0


@given(
    clusters(),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 5),
)
def test_whatever_waits_no_bound_is_passed_and_each_move_has_its_room(cluster, counts, most, per_workload, lost):
    """Plans are carried out one after the other, each on what the one before left, as the evictor does."""
    rules = DefragmentRules(
        on_demand=True, moves_per_hour=most, moves_per_workload=per_workload, lost_seconds_per_gpu=lost
    )
    past: list[PastMove] = []
    drawn = Counter()
    pods = {pod.uid: pod for name in cluster.nodes() for pod in cluster.on(name)}
    for number, count in enumerate(counts):
        movement = Movement(
            fleet=cluster.fleet,
            movable=list(pods.values()),
            now=NOW,
            left=cluster.left - drawn,
            weights=BUILT_IN_RESOURCES,
            per_workload=rules.moves_per_workload,
            moved=moved_pods(past, now=NOW),
        )
        left = moves_left(past, rules, now=NOW)
        [found] = separate_plans([target(count, name=f"x{number}", since=1)], movement)
        if isinstance(found, NotPlanned) or bound_on(found, rules, now=NOW, left=left) is not None:
            continue
        for move in found.moves:
            pod = pods.pop(move.pod.uid)
            demand = pod.victim.demand
            cluster.fleet.take(pod.node, demand, sign=-1, holder=pod.uid)
            assert cluster.fleet.fits(move.to, demand), "its place is free before anything else moved there"
            assert cluster.fleet.bit(move.to) & pod.where
            cluster.fleet.take(move.to, demand, holder=pod.uid)
            past.append(PastMove(NOW, pod.workload))
            drawn.update(pod.guards)
        place = found.places[0]
        assert cluster.fleet.fits(place.node, place.target.demand)
        cluster.fleet.take(place.node, place.target.demand, holder=place.target.uid)
        assert found.lost_work <= lost * place.target.demand.gpus
    assert len(past) <= most
    assert all(times <= per_workload for times in moved_pods(past, now=NOW).values())
    assert all(cluster.left[guard] >= times for guard, times in drawn.items())


@given(clusters(), st.integers(1, 4))
def test_a_plan_alone_is_the_first_of_several(cluster, count):
    pods = [pod for name in cluster.nodes() for pod in cluster.on(name)]
    movement = Movement(
        fleet=cluster.fleet, movable=pods, now=NOW, left=cluster.left, weights=BUILT_IN_RESOURCES, per_workload=2
    )
    wanted = [target(count, name="x")]
    [alone] = separate_plans(wanted, movement)
    together = make_room(wanted, movement)
    assert (alone,) in (together.rooms, together.refused)
