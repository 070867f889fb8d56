"""The stages of a pod's life, and what each of them means."""

import pytest

from tests.core.support.make import resident
from webhook.core.model.pod import TERMS, Obstacle, RemovalWay, RoomUse, Stage, Unbound, removal_of, stage_of

DEADLINE = 100


def stage(pod, *, now=50, lost=False):
    return stage_of(pod, now=now, is_node_lost=lost)


@pytest.mark.parametrize(
    ("obstacle", "want"),
    [
        (None, Stage.ADMITTED),
        (Obstacle.ROOM, Stage.WAITS),
        (Obstacle.NODES, Stage.WAITS),
        (Obstacle.GATE, Stage.STALLED),
        (Obstacle.PEERS, Stage.STALLED),
        (Obstacle.OTHER, Stage.STALLED),
    ],
)
def test_a_pod_without_a_node_is_at_a_stage_by_the_report_of_its_scheduler(obstacle, want):
    assert stage(resident(unbound=obstacle and Unbound(obstacle))) is want


@pytest.mark.parametrize(
    ("now", "lost", "want"),
    [
        (DEADLINE, False, Stage.ENDING),
        (DEADLINE, True, Stage.ENDING),
        (DEADLINE + 1, False, Stage.OVERDUE),
        (DEADLINE + 1, True, Stage.LOST),
        (0, True, Stage.LOST),
        (0, False, Stage.OVERDUE),
    ],
    ids=["in time", "in time, lost", "late, its kubelet lives", "late, lost", "time unknown, lost", "time unknown"],
)
def test_a_deleted_pod_counts_until_its_node_is_lost_and_its_time_is_over(now, lost, want):
    assert stage(resident(node="n0", is_terminating=True, deadline=DEADLINE), now=now, lost=lost) is want


def test_a_pod_on_a_lost_node_that_is_not_deleted_is_still_bound():
    assert stage(resident(node="n0"), lost=True) is Stage.BOUND


def test_a_deleted_pod_without_a_node_never_runs():
    assert stage(resident(is_terminating=True, deadline=DEADLINE), now=1) is Stage.ENDED


def test_what_may_still_run_is_charged_and_takes_room():
    """No stage in which a kubelet may hand out devices is free of charge, but that of a lost node."""
    rooms = {room: {each for each, terms in TERMS.items() if terms.room is room} for room in RoomUse}
    assert rooms[RoomUse.TAKEN] == {
        Stage.BOUND,
        Stage.ENDING,
        Stage.OVERDUE,
        Stage.LOST,
        Stage.LINGERING,
    }
    assert rooms[RoomUse.RESERVED] == {Stage.RESERVED, Stage.ADMITTED, Stage.WAITS, Stage.STALLED}
    charged = {each for each, terms in TERMS.items() if terms.is_charged}
    assert charged == (rooms[RoomUse.TAKEN] | rooms[RoomUse.RESERVED]) - {Stage.LOST}


def test_only_a_deleted_pod_of_a_node_has_its_grace_period_shortened():
    assert {each for each, terms in TERMS.items() if terms.removal is RemovalWay.SHORTEN} == {
        Stage.ENDING,
        Stage.OVERDUE,
    }


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (resident(), RemovalWay.DELETE),
        (resident(unbound=Unbound(Obstacle.OTHER)), RemovalWay.DELETE),
        (resident(node="n0"), RemovalWay.EVICT),
        (resident(node="n0", is_terminating=True, deadline=DEADLINE), RemovalWay.SHORTEN),
        (resident(is_terminating=True, deadline=DEADLINE), RemovalWay.NEVER),
    ],
)
def test_how_a_borrowing_pod_leaves(pod, want):
    assert removal_of(pod) is want


def test_reclaim_makes_room_for_pods_that_wait_for_it_and_for_no_others():
    entitled = {each for each, terms in TERMS.items() if terms.is_entitled}
    assert entitled == {Stage.IN_LINE, Stage.RESERVED, Stage.WAITS}
