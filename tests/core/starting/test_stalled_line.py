"""The watchdog: it sees the first pod in line that may start and does not, whatever keeps the passes from it."""

import pytest

from tests.core.support.line import LIMITED, due, place_for
from tests.core.support.make import resident, team
from tests.core.support.waiting import member, waiting
from webhook.core.starting.starts import STALLED_SECONDS, AssumedStarts, StalledLine

NOW = 1_000_000


class Watched:
    """A line that is looked at as the leader does, with passes or without any."""

    def __init__(self, *pods, **more):
        self.place = place_for(**more)
        for each in pods:
            self.place.set_waiting(each)
        self.starts, self.line = AssumedStarts(self.place), StalledLine(self.place)

    def look(self, at=0):
        self.starts.sync(now=NOW + at)
        self.line.look(self.starts.firsts(), now=NOW + at)
        return self.line.seconds


def test_it_says_for_how_long_the_first_could_have_started():
    watched = Watched(waiting("a"), waiting("b", namespace="team-b"))
    assert [watched.look(at) for at in (0, 10, STALLED_SECONDS - 1)] == [0, 10, STALLED_SECONDS - 1]
    assert watched.line.problem == ""
    watched.look(STALLED_SECONDS)
    assert watched.line.problem == (
        "the first queued pod, of team team-a, may start now, and has not been released for 30 s"
    )


def test_another_first_begins_again_and_a_line_that_moves_is_well():
    watched = Watched(waiting("a"), waiting("b", created=1))
    watched.look()
    watched.look(40)
    assert due(watched.place, count=1, now=NOW + 40, starts=watched.starts) == ["a"]
    assert (watched.look(41), watched.line.problem) == (0, "")
    assert due(watched.place, now=NOW + 42, starts=watched.starts) == ["b"]
    assert watched.look(80) == 0


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(waiting("a", 10), id="it waits for room"),
        pytest.param(member("a", size=2), id="a gang, of which passes know more"),
        pytest.param(waiting("a", foreign_gates=("example.com/gate",)), id="another controller holds it"),
    ],
)
def test_who_may_not_start_alone_is_no_stall(first):
    watched = Watched(first, nodes=1, residents=[resident(4, node="n0", namespace="team-b")])
    watched.look()
    assert watched.look(100) == 0


def test_a_team_at_its_limit_hides_no_other_team():
    full = team(limit_=2, guaranteed=2, **LIMITED)
    teams = (full, team("team-b", **LIMITED))
    watched = Watched(waiting("a"), waiting("b", namespace="team-b"), residents=[resident(2, node="n0")])
    watched.place.set_policy(place_for(*teams).policy)
    watched.look()
    watched.look(60)
    assert "of team team-b" in watched.line.problem


def test_room_that_reclaim_makes_is_no_stall():
    borrowed = [resident(10, node="n0", namespace="team-b", tier="preemptible")]
    watched = Watched(waiting("a", 4), nodes=1, residents=borrowed)
    watched.look()
    assert watched.look(60) == 0


def test_room_that_comes_counts_from_then_on():
    watched = Watched(waiting("a", 8), nodes=1, residents=[resident(4, uid="holder", node="n0", namespace="team-b")])
    watched.look()
    watched.look(100)
    watched.place.remove_pod("holder")
    assert [watched.look(at) for at in (110, 145)] == [0, 35]


def test_a_leader_that_ends_its_term_says_nothing():
    watched = Watched(waiting("a"))
    watched.look()
    watched.look(60)
    watched.line.look((), now=0)
    assert (watched.line.seconds, watched.line.problem) == (0, "")
