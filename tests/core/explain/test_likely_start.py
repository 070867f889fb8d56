"""Likely starts: ranges by how long pods ran, and None where that says nothing."""

import pytest

from webhook.core.explain.likely_start import MAX_SECONDS, Holding, Outflow

HOUR = 3600
ENDED = [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 5 * HOUR]  # four fifths: 5 h, a fifth: 2 h


def until(gpus, holdings, ended=(), **more):
    return Outflow([Holding(*each) for each in holdings], ended).until(gpus, **more)


def test_pods_run_as_long_as_earlier_ones_did():
    assert until(4, [(4, HOUR)], ENDED) == (HOUR, 4 * HOUR)


def test_a_pod_that_runs_longer_than_the_others_may_run_as_long_again():
    assert until(4, [(4, 6 * HOUR)], ENDED) == (0, 6 * HOUR)


def test_without_ended_pods_an_age_is_all_that_is_known():
    assert until(4, [(4, HOUR)], ENDED[:2]) == (HOUR // 3, 3 * HOUR)


def test_as_many_pods_must_end_as_are_needed():
    held = [(1, HOUR), (1, 2 * HOUR), (1, 3 * HOUR)]
    assert until(1, held) == (HOUR // 3, 3 * HOUR)
    assert until(3, held) == (HOUR, 9 * HOUR)


def test_those_ahead_take_what_comes_back_first():
    held = [(1, HOUR), (1, 2 * HOUR)]
    assert until(1, held, at_most=2) == (HOUR // 3, 6 * HOUR)


def test_more_than_is_held_comes_back_in_several_rounds():
    assert until(8, [(4, HOUR)], ENDED) == (HOUR + 2 * HOUR, 4 * HOUR + 5 * HOUR)
    assert until(8, [(4, HOUR)]) is None, "how long the next pods run is not known"


@pytest.mark.parametrize(
    ("gpus", "holdings", "ended"),
    [
        pytest.param(4, [], ENDED, id="nothing is held"),
        pytest.param(4, [(4, None)], [], id="no age is known"),
        pytest.param(4, [(4, 5)], [], id="all have just started"),
        pytest.param(4, [(4, MAX_SECONDS)], [], id="too far away"),
        pytest.param(4, [(3, HOUR), (1, None)], [], id="the age of one that is needed is not known"),
    ],
)
def test_otherwise_it_is_unknown(gpus, holdings, ended):
    assert until(gpus, holdings, ended) is None


def test_the_range_is_in_order():
    for ages in ([1, 9000, 100], [50_000, 60], [7, 7, 7]):
        for gpus in range(1, 6):
            found = until(gpus, [(2, age) for age in ages], ENDED)
            assert found is None or 0 <= found.earliest <= found.latest
