"""Run times: what is drawn follows earlier pods, is never negative, and depends on the seed alone."""

from random import Random
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.explain.line_places import Run
from webhook.core.model.pod import MAX_SECONDS
from webhook.simulation.forecast.run_times import MIN_ENDED, Likeness, RunTimes

NOW = 1_800_000_000
HOUR = 3600


def ended(*lengths, team="a", gpus=1, user=None, before=HOUR):
    return [
        Run(f"{team}{gpus}{user}-{number}", team, NOW - before - length, NOW - before, gpus, user)
        for number, length in enumerate(lengths)
    ]


def running(age, number=0, team="a", gpus=1):
    return Run(f"going-{number}", team, NOW - age, 0, gpus)


def draws(run_times, likeness=Likeness("a", 1), *, age=0, count=400):  # noqa: B008 - a value
    dice = Random(1)
    return [run_times.left(likeness, age=age, dice=dice) for _ in range(count)]


runs = st.lists(
    st.builds(
        lambda number, start, length, is_ended, team, gpus: Run(
            f"u{number}", team, NOW - start, min(NOW, NOW - start + length) if is_ended else 0, gpus
        ),
        st.integers(0, 10**6),
        st.integers(0, 10**8),
        st.integers(0, 10**8),
        st.booleans(),
        st.sampled_from("ab"),
        st.sampled_from([0, 1, 840_000]),
    ),
    max_size=60,
)


@given(runs, st.integers(-5, 10**9), st.integers(), st.sampled_from("abc"), st.sampled_from([1, 840_000, 7]))
def test_what_is_left_is_never_below_a_second_nor_beyond_the_bound(found, age, seed, team, gpus):
    run_times = RunTimes(found, now=NOW)
    left = run_times.left(Likeness(team, gpus, "ann"), age=max(0, age), dice=Random(seed))
    assert 1 <= left <= MAX_SECONDS
    assert 1 <= run_times.scaled(6.0, Random(seed)).left(Likeness(team, gpus), max(0, age)) <= MAX_SECONDS


@given(runs, st.integers(0, 10**6), st.integers())
def test_the_same_seed_draws_the_same_in_whatever_order_pods_were_read(found, age, seed):
    found = list({run.uid: run for run in found}.values())
    one, other = RunTimes(found, now=NOW), RunTimes(reversed(found), now=NOW)
    wanted = [one.left(Likeness("a", 1), age=age, dice=Random(seed)) for _ in range(3)]
    assert wanted == [other.left(Likeness("a", 1), age=age, dice=Random(seed)) for _ in range(3)]


def test_pods_run_as_long_as_earlier_ones():
    found = draws(RunTimes(ended(*range(600, 1200, 10)), now=NOW))
    assert 800 < median(found) < 1000
    assert min(found) >= 540


def test_a_pod_that_has_run_for_long_has_outlived_the_short_ones():
    run_times = RunTimes(ended(*[60] * 50, *range(9000, 10_000, 50)), now=NOW)
    assert median(draws(run_times)) <= 60
    assert 7000 < median(draws(run_times, age=1000)) < 9500


def test_past_the_longest_run_half_run_as_long_again():
    found = draws(RunTimes(ended(*range(600, 1200, 10)), now=NOW), age=20_000)
    assert 15_000 < median(found) < 26_000


def test_pods_that_still_run_make_those_to_come_longer():
    lengths = range(600, 1200, 30)
    alone = draws(RunTimes(ended(*lengths), now=NOW))
    beside = draws(RunTimes([*ended(*lengths), *(running(5000, n) for n in range(60))], now=NOW))
    assert mean(map(float, beside)) > 2 * mean(map(float, alone))


def test_where_only_the_latest_ends_are_known_long_runs_count_from_then_on():
    """Of pods that ended earlier nothing is known: those that run since then were not at risk as far as one can see."""
    latest = [run for number in range(20) for run in ended(*[100] * 10, before=100 * number, user=f"u{number}")]
    old = [running(10**6, number) for number in range(200)]
    assert median(draws(RunTimes([*latest, *old], now=NOW))) <= 100


@pytest.mark.parametrize(
    ("likeness", "want"),
    [
        pytest.param(Likeness("a", 8), 8000, id="its team's pods of its size"),
        pytest.param(Likeness("a", 1, "ann"), 100, id="its user's"),
        pytest.param(Likeness("a", 1, "eve"), 1000, id="a user without pods: those of the team and size"),
        pytest.param(Likeness("z", 8), 8000, id="a team without pods: those of the size"),
    ],
)
def test_it_is_drawn_from_the_most_similar_pods(likeness, want):
    runs = [
        *ended(*[8000] * 30, gpus=8),
        *ended(*[1000] * 45, gpus=1),
        *ended(*[1000] * 45, gpus=1, user="bob"),
        *ended(*[100] * 30, gpus=1, user="ann"),
    ]
    assert 0.9 * want <= median(draws(RunTimes(runs, now=NOW), likeness)) <= want


def test_too_few_ended_pods_are_not_known():
    few = ended(*[60] * (MIN_ENDED - 1))
    assert not RunTimes([*few, *(running(60, n) for n in range(99))], now=NOW).is_known
    assert RunTimes(ended(*[60] * MIN_ENDED), now=NOW).is_known


def test_pods_without_gpus_stay_where_none_of_them_ended():
    run_times = RunTimes(ended(*[60] * 50), now=NOW)
    assert set(draws(run_times, Likeness("", 0), count=5)) == {MAX_SECONDS}


HONEST = ended(*[10 * HOUR + n for n in range(200)], team="b", user="bob", before=2 * HOUR)
SHORT = [Run(f"s{n}", "a", NOW - 3 * n - 5, NOW - 3 * n - 3, 1, f"robot-{n % 500}") for n in range(10_000)]


def test_short_pods_of_one_team_do_not_displace_what_is_known_of_others():
    run_times = RunTimes([*HONEST, *SHORT], now=NOW)
    assert 9 * HOUR <= median(draws(run_times, Likeness("b", 1, "bob"))) <= 10.1 * HOUR
    assert median(draws(run_times, Likeness("a", 1, "robot-0"))) <= 3


def test_short_pods_of_one_team_are_no_more_than_their_part_of_what_teams_share():
    """A team of which little is known is drawn like all teams: of four, one has short pods."""
    others = [run for team in "bcd" for run in ended(*[10 * HOUR + n for n in range(200)], team=team, user="u")]
    run_times = RunTimes([*others, *SHORT], now=NOW)
    assert median(draws(run_times, Likeness("new", 1, "eve"))) >= 9 * HOUR


def test_short_pods_of_one_user_are_no_more_than_its_part_of_the_team():
    others = [run for user in "xyz" for run in ended(*[10 * HOUR + n for n in range(100)], user=user)]
    short = [run._replace(user="robot") for run in SHORT]
    run_times = RunTimes([*others, *short], now=NOW)
    assert median(draws(run_times, Likeness("a", 1, "new"))) >= 9 * HOUR
