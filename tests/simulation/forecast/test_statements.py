"""Statements of run times: believed by how they held so far, scaled by that, and bounded by deadlines."""

from random import Random
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.explain.line_places import Run
from webhook.core.model.pod import MAX_SECONDS, NO_RUN_TIME, RunTime
from webhook.simulation.forecast.run_times import Likeness, RunTimes

NOW = 10_000_000
HOUR = 3600
ANN = Likeness("a", 8, "ann")


def ended(*lengths, said, user="ann", team="a", first=0):
    """Pods that ended one after the other; `said` is a statement, or a function of the length."""
    return [
        Run(
            f"{team}-{user}-{first + n}",
            team,
            NOW - length - 60,
            NOW - 60,
            8,
            user,
            RunTime(said(length) if callable(said) else said),
        )
        for n, length in enumerate(lengths)
    ]


def running(age, run_time, user="ann", team="a"):
    return Run(f"r-{team}-{user}-{age}", team, NOW - age, 0, 8, user, run_time)


def draws(runs, stated, *, likeness=ANN, age=0, most=0, count=200):
    times, dice = RunTimes(runs, now=NOW), Random(1)
    return [times.left(likeness, age=age, dice=dice, run_time=RunTime(stated, most)) for _ in range(count)]


def spread(found):
    found = sorted(found)
    return found[len(found) // 10], median(found), found[-len(found) // 10]


def test_in_a_new_cluster_a_statement_is_taken_about_as_it_is():
    low, middle, high = spread(draws([], 2 * HOUR))
    assert HOUR / 4 < low < middle < high < 6 * HOUR
    assert HOUR < middle < 3 * HOUR


def test_a_pod_of_which_nothing_is_known_never_ends_but_in_the_draw_of_the_shortest():
    times = RunTimes([], now=NOW)
    assert times.left(ANN, age=60, dice=Random(1)) == MAX_SECONDS
    assert times.left(ANN, age=60, dice=Random(1), is_fastest=True) == 1


def test_statements_that_held_make_narrow_times_also_where_runs_differ_much():
    lengths = [60 * (n + 1) ** 2 for n in range(40)]
    low, _, high = spread(draws(ended(*lengths, said=lambda length: round(0.9 * length)), HOUR))
    assert HOUR <= low <= high <= 1.2 * HOUR


def test_a_habit_of_stating_too_much_is_allowed_for():
    lengths = [HOUR + 60 * n for n in range(40)]
    low, _, high = spread(draws(ended(*lengths, said=lambda length: round(1.6 * length)), 16 * HOUR))
    assert 9 * HOUR < low <= high < 11 * HOUR


def test_a_user_who_states_an_hour_and_runs_ten_is_not_believed():
    runs = ended(*[10 * HOUR + n for n in range(25)], said=HOUR)
    record = RunTimes(runs, now=NOW).statements.record("a", "ann")
    assert (record.held, record.ended, record.is_believed) == (0, 25, False)
    assert 9 * HOUR <= median(draws(runs, HOUR)) <= 10.1 * HOUR
    assert 9 * HOUR <= median(draws(runs, 1)) <= 10.1 * HOUR, "whatever they state"


def test_no_number_of_short_pods_makes_a_lie_about_a_long_one_credible():
    honest = ended(*[60] * 500, said=60)
    assert median(draws(honest, 1)) <= 2
    caught = [*honest, running(10 * HOUR, RunTime(1))]
    assert not RunTimes(caught, now=NOW).statements.record("a", "ann").is_believed
    assert median(draws(caught, 1)) >= 50, "as if nothing had been stated: like its short pods"


def test_a_new_name_has_the_record_of_its_team():
    runs = ended(*[10 * HOUR + n for n in range(25)], said=1)
    fresh = Likeness("a", 8, "a new user")
    assert median(draws(runs, 1, likeness=fresh)) >= 9 * HOUR
    elsewhere = Likeness("b", 8, "bob")
    assert median(draws(runs, HOUR, likeness=elsewhere)) < 2 * HOUR, "no record of others counts for another team"


def test_a_pod_that_has_run_for_twice_its_statement_is_drawn_without_it():
    runs = ended(*[10 * HOUR + n for n in range(25)], said=lambda length: length)
    assert median(draws(runs, HOUR, age=2 * HOUR + 1)) >= 7 * HOUR
    assert median(draws(runs, 10 * HOUR, age=2 * HOUR)) >= 7 * HOUR
    assert median(draws(runs, HOUR, age=HOUR // 2)) <= HOUR


def test_a_deadline_bounds_every_draw_unless_the_user_does_not_keep_to_them():
    runs = ended(*[10 * HOUR + n for n in range(25)], said=0)
    assert max(draws(runs, 0, most=HOUR)) == HOUR
    assert max(draws(runs, 0, most=HOUR, age=1000)) == HOUR - 1000
    assert median(draws(runs, 0, most=HOUR, age=2 * HOUR)) > HOUR, "its deadline has passed, and it runs"
    broken = [*runs, running(4 * HOUR, RunTime(0, HOUR))]
    assert median(draws(broken, 0, most=HOUR)) > 9 * HOUR


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.integers(0, 10**8), st.integers(0, 10**8)), max_size=40),
    st.integers(0, 10**8),
    st.integers(0, 10**8),
    st.integers(0, 10**8),
    st.floats(0.25, 5),
)
def test_any_statement_makes_a_time_within_bounds(past, stated, most, age, pace):
    runs = [
        Run(f"u{n}", "a", NOW - length, NOW if n % 3 else 0, 8, "ann", RunTime(min(said, MAX_SECONDS), limit))
        for n, (length, said, limit) in enumerate(past)
    ]
    drawn = RunTimes(runs, now=NOW).scaled(pace, Random(1)).left(ANN, age, RunTime(min(stated, MAX_SECONDS), most))
    assert 1 <= drawn <= MAX_SECONDS


def test_what_one_team_states_changes_nothing_that_is_drawn_of_others():
    others = ended(*[HOUR + n for n in range(30)], said=lambda length: length, team="b", user="bob")
    lies = ended(*[10 * HOUR + n for n in range(30)], said=1, team="a", user="eve")
    bob = Likeness("b", 8, "bob")
    for stated in (HOUR, 0):
        assert draws([*others, *lies], stated, likeness=bob) == draws(
            [*others, *(run._replace(run_time=NO_RUN_TIME) for run in lies)], stated, likeness=bob
        )
