"""The progress of a build, by a clock of the test."""

import pytest

from tests.control_plane.progress import Progress, in_words, roughly
from tests.control_plane.versions import Recipe

SMALL, LARGE, LAST = (
    Recipe(name, "1.2", (), typical_minutes=minutes) for name, minutes in (("small", 1), ("large", 9), ("last", 2))
)
MINUTE = 60


def test_it_names_the_recipe_its_place_and_the_times():
    progress = Progress([SMALL, LARGE], started=100)
    progress.done(100 + MINUTE)
    want = "[2/2] large 1.2: building for 1 min 30 s, 2 min 30 s in all, about 8 min left"
    assert progress.describe(100 + 2.5 * MINUTE) == want


def test_without_a_measurement_a_typical_machine_is_assumed():
    assert Progress([SMALL, LARGE, LAST], started=0).remaining(0) == 12 * MINUTE


@pytest.mark.parametrize(
    ("minutes", "want"),
    [
        pytest.param(1, 11, id="as fast as typical"),
        pytest.param(3, 22, id="three times slower: half of that is believed after so small a recipe"),
        pytest.param(0, 5.5, id="all was in Go's cache: half of that is believed"),
    ],
)
def test_what_is_built_says_how_fast_the_machine_is(minutes, want):
    progress = Progress([SMALL, LARGE, LAST], started=0)
    progress.done(minutes * MINUTE)
    assert progress.remaining(minutes * MINUTE) == pytest.approx(want * MINUTE)


def test_the_estimate_shrinks_with_the_time_that_passes():
    progress = Progress([LARGE, LAST], started=0)
    assert progress.remaining(5 * MINUTE) == 6 * MINUTE


def test_an_overdue_recipe_raises_the_estimate_and_is_not_reported_as_done():
    progress = Progress([LARGE, LAST], started=0)
    assert progress.remaining(20 * MINUTE) == pytest.approx((2 + 2 * (1 + 22) / (1 + 9)) * MINUTE)


@pytest.mark.parametrize(
    ("seconds", "want"), [(7.4, "7 s"), (59.6, "1 min 00 s"), (61, "1 min 01 s"), (3600, "60 min 00 s")]
)
def test_durations(seconds, want):
    assert in_words(seconds) == want


@pytest.mark.parametrize(("seconds", "want"), [(0, "10 s"), (34, "30 s"), (89, "90 s"), (90, "2 min"), (700, "12 min")])
def test_estimates(seconds, want):
    assert roughly(seconds) == want
