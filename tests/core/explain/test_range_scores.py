"""Ranges are scored by what happened, by their width, and a class forgets half of its past when it has much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.explain.line_places import NO_SCORE, RangeScores, Score, StartRange

HOUR = 3600


@pytest.mark.parametrize(
    ("waited", "want"),
    [
        (99, Score(earlier=1)),
        (100, Score(inside=1)),
        (500, Score(inside=1)),
        (505, Score(inside=1)),
        (506, Score(later=1)),
    ],
)
def test_a_range_holds_its_ends_and_starts_are_seen_a_little_late(waited, want):
    scores = RangeScores()
    assert scores.note(StartRange(100, 500), waited, slack=5) == want
    assert scores.of(StartRange(0, 400)) == want


def test_only_ranges_of_about_the_same_width_count_together():
    scores = RangeScores()
    scores.note(StartRange(0, HOUR), 5, slack=0)
    assert scores.of(StartRange(8 * HOUR, 9 * HOUR)).inside == 1
    assert scores.of(StartRange(0, HOUR + 1)) == NO_SCORE
    assert scores.of(StartRange(0, 600)) == NO_SCORE


@given(st.lists(st.integers(0, 1000), max_size=50), st.integers(1, 60))
def test_sums_are_bounded_and_keep_their_parts(waits, times):
    scores, found = RangeScores(), StartRange(100, 500)
    for _ in range(times):
        for waited in waits:
            scores.note(found, waited, slack=0)
    score = scores.of(found)
    assert score.total <= 1000
    assert (score.total > 0) == bool(waits)
    assert score.inside == 0 or any(100 <= waited <= 500 for waited in waits)
