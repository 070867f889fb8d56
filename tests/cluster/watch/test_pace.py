import pytest

from webhook.cluster.watch.event_stream import Pace

LONGEST = Pace(uniform=lambda _low, high: high)
SHORTEST = Pace(uniform=lambda low, _high: low)


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"),
    [
        pytest.param(0, 0.0, 0.0, id="no failure, no rest"),
        pytest.param(1, 0.25, 0.5, id="a first failure"),
        pytest.param(2, 0.5, 1.0, id="doubled"),
        pytest.param(7, 15.0, 30.0, id="up to the longest"),
        pytest.param(10_000, 15.0, 30.0, id="and no overflow after a week"),
    ],
)
def test_backoffs_grow_and_are_jittered(failures, shortest, longest):
    assert (SHORTEST.backoff(failures), LONGEST.backoff(failures)) == (shortest, longest)


def test_retry_after_is_respected_up_to_the_maximum():
    assert SHORTEST.backoff(1, retry_after=7.0) == 7.0
    assert SHORTEST.backoff(1, retry_after=86_400.0) == 30.0


def test_a_watch_lives_between_five_and_ten_minutes():
    assert (SHORTEST.lifetime(), LONGEST.lifetime()) == (300, 600)
