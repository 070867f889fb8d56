"""Readings over time: how much is idle, what a gap does, and how far excuses go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.addons.idle.judge import GAP_PERCENT, IdleWindow, Reading, WindowBounds

BOUNDS = WindowBounds(readings=20, excuses=10, share_percent=95)
USED, LOW, EXCUSED, UNKNOWN = Reading


def window(*readings, bounds=BOUNDS):
    made = IdleWindow(0, 0)
    for slot, reading in enumerate(readings, 1):
        made.note(slot, reading, bounds)
    return made


@pytest.mark.parametrize(
    ("readings", "want"),
    [
        ([LOW] * 20, True),
        ([LOW] * 19, False),
        ([LOW] * 9 + [UNKNOWN, UNKNOWN] + [LOW] * 9, True),
        ([USED] + [LOW] * 19, True),
        ([USED, USED] + [LOW] * 18, False),
        ([LOW] * 20 + [USED], False),
        ([LOW] * 20 + [UNKNOWN], True),
        ([LOW] * 20 + [UNKNOWN] * 2, False),
        ([LOW] * 10 + [UNKNOWN] * 3 + [LOW] * 7, False),
        ([LOW] * 10 + [UNKNOWN] * 3 + [LOW] * 8, True),
        ([UNKNOWN] * 40, False),
        ([EXCUSED] * 10 + [LOW] * 19, False),
        ([EXCUSED] * 10 + [LOW] * 20, True),
        ([LOW] * 20 + [EXCUSED] * 2, False),
        ([LOW] * 20 + [USED] + [LOW] * 20, True),
    ],
    ids=[
        "low all the time",
        "not long enough",
        "a tenth may be missing",
        "used once in twenty readings",
        "used more often",
        "used now",
        "one reading is missing",
        "two readings are missing",
        "a gap does not count as use of 0",
        "what is known is enough",
        "nothing is known",
        "what is excused does not count",
        "after its excuses",
        "excused now",
        "a short use does not reset it",
    ],
)
def test_a_window(readings, want):
    assert window(*readings).is_idle(BOUNDS) is want


def test_excuses_end_whatever_the_pod_does():
    """A pod that restarts, or writes that it saved, without end."""
    made = window(*[EXCUSED] * 11)
    assert (made.excused.bit_count(), made.seen.bit_count()) == (10, 1)
    assert window(*[EXCUSED] * 30).is_idle(BOUNDS)


def test_a_jump_of_the_clock_is_a_gap():
    made = window(*[LOW] * 20)
    made.note(10_000, LOW, BOUNDS)
    assert (made.seen, made.low) == (1, 1)


def test_a_slot_counts_once():
    made = window(LOW)
    assert made.note(1, USED, BOUNDS) is UNKNOWN
    assert made.low == 1


@given(st.lists(st.sampled_from(Reading), max_size=60))
def test_a_pod_is_idle_only_if_enough_was_seen_and_low(readings):
    made = window(*readings)
    kept = readings[-BOUNDS.length :]
    if made.is_idle(BOUNDS):
        low, used = kept.count(LOW) + kept.count(EXCUSED), kept.count(USED)
        assert (low + used) * 100 >= BOUNDS.readings * (100 - GAP_PERCENT)
        assert used * 100 <= (low + used) * (100 - BOUNDS.share_percent)
        assert USED not in kept[-1:]
        assert set(kept[-2:]) != {UNKNOWN}
