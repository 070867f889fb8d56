"""The pauses of pods and teams after wasted evictions."""

import pytest

from webhook.evictor.unevictable import LONG_SECONDS, TOGETHER_SECONDS, PodBackoff, TeamBackoff


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def fail_apart(backoff, clock):
    """Waste an eviction some time after the last."""
    clock.now += TOGETHER_SECONDS
    return backoff.fail("t")


def test_a_pod_that_does_not_use_its_room_gets_the_long_pause_after_the_second_try():
    patience = PodBackoff(Clock())
    assert [patience.fail("p", is_own_fault=True) for _ in range(4)] == [
        None,
        LONG_SECONDS,
        2 * LONG_SECONDS,
        4 * LONG_SECONDS,
    ]


def test_a_pod_whose_room_others_take_never_gets_the_long_pause():
    clock = Clock()
    patience = PodBackoff(clock)
    pauses = []
    for _ in range(8):
        assert patience.fail("p", is_own_fault=False) is None
        pauses.append((patience.next_end() or clock.now) - clock.now)
    assert pauses == [0, 5, 10, 20, 40, 40, 40, 40]


def test_a_team_that_wastes_evictions_pauses_longer_after_each():
    clock = Clock()
    backoff = TeamBackoff(clock)
    assert [fail_apart(backoff, clock) for _ in range(5)] == pytest.approx([0, 0, 5, 10, 20], rel=0.05)
    assert (backoff.paused(), backoff.next_end()) == ({"t"}, pytest.approx(clock.now + 20, abs=1))
    assert [fail_apart(backoff, clock) for _ in range(7)][-1] == LONG_SECONDS
    assert backoff.fail("other") == 0


def test_evictions_wasted_together_count_as_one():
    clock = Clock()
    backoff = TeamBackoff(clock)
    fail_apart(backoff, clock)
    fail_apart(backoff, clock)
    clock.now += TOGETHER_SECONDS
    assert [round(backoff.fail("t")) for _ in range(12)] == [5] + [0] * 11
    assert fail_apart(backoff, clock) == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize(("after", "want"), [(0, 40), (LONG_SECONDS, 20), (5 * LONG_SECONDS, 0)])
def test_only_time_resets_the_backoff(after, want):
    clock = Clock()
    backoff = TeamBackoff(clock)
    for _ in range(5):
        fail_apart(backoff, clock)
    clock.now += after
    assert fail_apart(backoff, clock) == pytest.approx(want, rel=0.05)
    clock.now += LONG_SECONDS
    assert backoff.paused() == frozenset()
    assert backoff.next_end() is None
