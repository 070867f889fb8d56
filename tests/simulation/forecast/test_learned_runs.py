"""Which pods run times are learned from."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.explain.line_places import Run
from webhook.simulation.forecast import run_times
from webhook.simulation.forecast.run_times import MAX_RUNS, Learned, balanced, latest

NOW = 1_000_000


def runs(count, *, team="a", user="u", end=NOW - 10):
    return [Run(f"{team}{user}{n}", team, end - n - 5, end - n, 1, user) for n in range(count)]


def test_all_are_taken_while_there_are_few():
    few = [*runs(30), *runs(20, team="b")]
    assert {each.run for each in latest(few, now=NOW)} == set(few)
    assert all(each.since == 0 for each in latest(few, now=NOW))


def test_a_team_with_many_loses_its_oldest():
    taken = latest([*runs(MAX_RUNS), *runs(50, team="b", end=500)], now=NOW)
    kept = [each for each in taken if each.run.team == "a"]
    assert len(taken) - len(kept) == 50
    assert len(kept) == MAX_RUNS - 50
    assert {each.since for each in kept} == {min(each.run.ended for each in kept)}, "earlier ends are missing"
    assert {each.since for each in taken if each.run.team == "b"} == {451}, "by its own pods, not by those of others"


def test_a_user_with_many_loses_its_oldest():
    taken = latest([*runs(MAX_RUNS), *runs(50, user="v", end=500)], now=NOW)
    assert sum(each.run.user == "v" for each in taken) == 50


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("uv"), st.integers(1, 60)), max_size=8))
def test_in_a_group_no_team_has_more_than_the_others_on_average(drawn):
    found = [
        Learned(run) for n, (team, user, count) in enumerate(drawn) for run in runs(count, team=team, user=f"{user}{n}")
    ]
    taken = balanced(found)
    assert {each.run for each in taken} <= {each.run for each in found}
    numbers = {team: sum(each.run.team == team for each in taken) for team in "abc"}
    known = {team: sum(each.run.team == team for each in found) for team in "abc"}
    for team, number in numbers.items():
        others = [known[other] for other in known if other != team and known[other]]
        if others:
            assert number <= max(run_times.OF_GROUP, sum(others) // len(others))
