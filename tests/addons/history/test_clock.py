"""The clock of the record: even, and set only when the record is ready for it."""

from webhook.addons.history.recorder import SteadyClock


class Times:
    wall = 1000.0
    monotonic = 5.0


def clock(times):
    return SteadyClock(lambda: times.wall, lambda: times.monotonic)


def test_it_advances_with_the_monotonic_clock_and_takes_over_a_step_when_asked():
    times = Times()
    made = clock(times)
    times.wall, times.monotonic = 1010.0, 15.0
    assert made() == 1010
    assert not made.has_been_set()
    times.wall = 500.0
    assert made() == 1010
    assert made.has_been_set()
    assert made() == 500
    assert not made.has_been_set()


def test_what_the_system_slews_is_no_step():
    times = Times()
    made = clock(times)
    times.wall += 0.9
    assert not made.has_been_set()
