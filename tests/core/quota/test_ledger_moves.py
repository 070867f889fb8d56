"""Moves of a team between ledgers: an epoch that was closed is never opened again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.core.model.amounts import DepartmentName, TeamName
from webhook.core.quota.usage import NO_MOVES, Moves, department_ledger, department_of

TEAM, LEFT, RIGHT = TeamName("team-a"), DepartmentName("left"), DepartmentName("right")


def test_a_team_goes_to_a_department_and_comes_back():
    own = NO_MOVES.sent(LEFT, epoch=1)
    shared = NO_MOVES.joined(TEAM, epoch=1)
    assert (own.is_away, own.home, shared.is_open_for(TEAM)) == (True, LEFT, True)
    shared = shared.closed(TEAM, epoch=1)
    own = own.returned(epoch=2)
    assert (own, shared.is_open_for(TEAM)) == (Moves(2, None, {LEFT: 2}), False)
    assert own.settled(LEFT, epoch=2) == Moves(2)


@pytest.mark.parametrize(
    "late",
    [
        lambda shared: shared.joined(TEAM, epoch=1),
        lambda shared: shared.closed(TEAM, epoch=1),
        lambda shared: shared.closed(TEAM, epoch=2),
    ],
    ids=["a join of an epoch that was closed", "a second close", "a close of what is not open"],
)
def test_a_replica_that_acts_late_on_a_department_changes_nothing(late):
    shared = NO_MOVES.joined(TEAM, epoch=1).closed(TEAM, epoch=1)
    assert late(shared) is shared


@pytest.mark.parametrize(
    ("own", "late"),
    [
        (Moves(1, LEFT), lambda own: own.sent(RIGHT, epoch=3)),
        (Moves(4), lambda own: own.sent(RIGHT, epoch=3)),
        (Moves(4), lambda own: own.returned(epoch=6)),
        (Moves(3, LEFT), lambda own: own.returned(epoch=2)),
        (Moves(4, left={LEFT: 4}), lambda own: own.settled(LEFT, epoch=2)),
    ],
    ids=["sent twice", "sent with an old epoch", "returned twice", "returned by an old close", "settled too early"],
)
def test_a_replica_that_acts_late_on_a_team_changes_nothing(own, late):
    assert late(own) is own


def test_an_object_that_was_deleted_by_hand_gets_the_later_state_back():
    before = Moves(3, LEFT, members={TEAM: 5})
    assert NO_MOVES.after(before) == before
    later = Moves(5, RIGHT, members={TEAM: 7})
    assert later.after(before) is later


@examples(50)
@given(st.lists(st.tuples(st.sampled_from(("join", "close")), st.integers(1, 6)), max_size=30))
def test_the_epoch_in_a_department_never_falls(steps):
    shared, before = NO_MOVES, 0
    for what, epoch in steps:
        shared = shared.joined(TEAM, epoch=epoch) if what == "join" else shared.closed(TEAM, epoch=epoch)
        assert shared.members.get(TEAM, 0) >= before
        before = shared.members.get(TEAM, 0)


def test_the_ledger_of_a_department_has_a_name_that_no_team_can_have():
    assert department_of(department_ledger(LEFT)) == LEFT
    assert department_of(TeamName("department")) is None
