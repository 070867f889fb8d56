"""Sums and lines of recorded usage, from one recorder and from several."""

import pytest

from tests.addons.history.support import A100, T0, row
from webhook.addons.history.meter import INTERVAL_SECONDS, Recording
from webhook.addons.history.reader import (
    By,
    Ratios,
    merged,
    observed_hours,
    ratios,
    team_lines,
    total,
    usage_by,
    whole_intervals,
)

HOUR = 3600
ROWS = [
    row("observed", INTERVAL_SECONDS),
    row("guaranteed", 10 * HOUR, team="vision", user="ada", model=A100, department="research/cv"),
    row("preemptible", 2 * HOUR, team="vision", user="bob", model="H100", department="research/cv"),
    row("preemptible", 4 * HOUR, team="nlp", user="ada", model=A100),
    row("waiting", 3 * HOUR, team="nlp", user="ada"),
    row("unused", 6 * HOUR, team="vision", department="research/cv"),
    row("free", 1 * HOUR, model="H100"),
    row("refused", 5, team="nlp", user="ada"),
    row("refused_gpus", 40, team="nlp", user="ada"),
    row("lost", 3 * HOUR, team="nlp", user="ada", model=A100),
    row("moved", 1 * HOUR, team="nlp", user="ada", model=A100),
    row("saved", 2 * HOUR, team="nlp", user="ada", model=A100),
]


def shown(by):
    return {
        each.name: (each.guaranteed, each.preemptible, each.idle, each.waiting, each.refused, each.refused_gpus)
        for each in usage_by(ROWS, by)
    }


@pytest.mark.parametrize(
    ("by", "want"),
    [
        (By.TEAM, {"vision": (10, 2, 6, 0, 0, 0), "nlp": (0, 4, None, 3, 5, 40)}),
        (By.USER, {"ada": (10, 4, None, 3, 5, 40), "bob": (0, 2, None, 0, 0, 0)}),
        (By.MODEL, {A100: (10, 4, None, 0, 0, 0), "H100": (0, 2, 1, 0, 0, 0)}),
        (By.TIER, {"guaranteed": (10, 0, None, 0, 0, 0), "preemptible": (0, 6, None, 0, 0, 0)}),
        (By.DEPARTMENT, {"research/cv": (10, 2, 6, 0, 0, 0), "": (0, 4, None, 3, 5, 40)}),
    ],
)
def test_usage_is_summed_by_what_is_asked_those_that_held_most_first(by, want):
    assert shown(by) == want
    assert list(shown(by)) == list(want)


@pytest.mark.parametrize(
    ("by", "want"),
    [
        (By.TEAM, {"nlp": (3, 1, 2)}),
        (By.USER, {"ada": (3, 1, 2)}),
        (By.MODEL, {A100: (3, 1, 2)}),
        (By.TIER, {}),
        (By.DEPARTMENT, {"": (3, 1, 2)}),
    ],
)
def test_what_evictions_and_moves_lost_and_saved_is_summed_like_what_pods_held_except_by_tier(by, want):
    found = {each.name: (each.lost, each.moved, each.saved) for each in usage_by(ROWS, by)}
    assert {name: amounts for name, amounts in found.items() if any(amounts)} == want
    assert (total(ROWS).lost, total(ROWS).moved, total(ROWS).saved) == (3, 1, 2)


def test_the_total_has_the_free_gpus_of_the_cluster_as_idle():
    found = total(ROWS)
    assert (found.guaranteed, found.preemptible, found.idle, found.waiting, found.refused) == (10, 6, 1, 3, 5)
    assert observed_hours(ROWS) == INTERVAL_SECONDS / HOUR


def test_ratios_are_of_the_last_interval_and_of_the_whole_time():
    later = T0 + INTERVAL_SECONDS
    rows = [
        *(row(f"use_{kind}", amount) for kind, amount in {"gpus": 80, "held": 20, "nodes": 10, "partly": 5}.items()),
        *(row(f"use_{kind}", amount, start=later) for kind, amount in {"gpus": 80, "held": 60, "nodes": 10}.items()),
        row("use_spread", 40, start=later),
        row("use_beyond", 10, start=later),
    ]
    found = ratios(rows)
    assert (found.allocation, found.occupancy, found.fragmentation, found.beyond_fewest) == (0.75, 0.5, 0.25, 0.25)
    assert found.waits == []


def test_waits_by_size_are_the_bounds_of_groups_and_what_names_no_group_is_left_out():
    rows = [
        row("started", 8, model="1/10"),
        row("started", 1, model="1/60", start=T0 + INTERVAL_SECONDS),
        row("started", 1, model="1/inf"),
        row("started", 2, model="9-64/3600"),
        row("started", 5, model="nonsense"),
    ]
    found = ratios(rows)
    assert [(each.size, each.jobs, each.wait_p50, each.wait_p90, each.wait_p99) for each in found.waits] == [
        ("1", 10, 10, 60, None),
        ("9-64", 2, 3600, 3600, 3600),
    ]
    assert found.occupancy is None
    assert ratios([]) == Ratios()


def test_the_sums_of_teams_have_nothing_of_the_use_of_nodes():
    use = [row("use_held", 9 * HOUR), row("started", 3, model="1/10")]
    assert usage_by([*ROWS, *use], By.TEAM) == usage_by(ROWS, By.TEAM)
    assert all(usage_by([*ROWS, *use], by) == usage_by(ROWS, by) for by in By)
    assert total([*ROWS, *use]) == total(ROWS)


def test_of_several_replicas_the_one_that_observed_an_interval_longest_counts():
    def seen(name, *seconds):
        rows = []
        for number, each in enumerate(seconds):
            start = T0 + number * INTERVAL_SECONDS
            rows += [row("observed", each, start=start), row("guaranteed", each * 2, team="vision", start=start)]
        return Recording(name, tuple(rows))

    found = merged([seen("a", 300, 40), seen("b", 290, 300)])
    assert [each.amount for each in found if each.key.kind == "guaranteed"] == [600, 600]


def test_refusals_of_several_replicas_add_up():
    recordings = [Recording(name, (row("refused", count, team="nlp"),)) for name, count in (("a", 3), ("b", 4))]
    assert [each.amount for each in merged(recordings)] == [7]


def test_the_order_of_recordings_does_not_matter():
    recordings = [Recording(name, (row("guaranteed", amount, team="nlp"),)) for name, amount in (("a", 3), ("b", 4))]
    assert merged(recordings) == merged(recordings[::-1])


def test_lines_have_the_average_of_each_step_and_none_where_nothing_was_recorded():
    rows = [
        row("observed", 290, start=T0),
        row("guaranteed", 600, team="vision", start=T0),
        row("waiting", 300, team="vision", start=T0 + INTERVAL_SECONDS),
        row("refused", 2, team="vision", start=T0),
        row("observed", 60, start=T0 + 2 * INTERVAL_SECONDS),
        row("guaranteed", 240, team="vision", user="ada", start=T0 + 2 * INTERVAL_SECONDS),
        row("guaranteed", 240, team="vision", user="bob", start=T0 + 2 * INTERVAL_SECONDS),
    ]
    until = T0 + 2 * INTERVAL_SECONDS + 60
    line = team_lines(rows, since=T0, until=until, step_seconds=INTERVAL_SECONDS)["vision"]
    assert list(line.guaranteed) == [2, None, 8]
    assert list(line.refused) == [2, None, 0]


def test_a_range_is_widened_to_whole_intervals():
    assert whole_intervals(T0 + 1, T0 + INTERVAL_SECONDS + 1) == (T0, T0 + 2 * INTERVAL_SECONDS)
    assert whole_intervals(T0, T0 + INTERVAL_SECONDS) == (T0, T0 + INTERVAL_SECONDS)


@pytest.mark.parametrize(
    ("by", "want"),
    [
        (By.TEAM, {"vision": 3.0, "nlp": None}),
        (By.USER, {"ada": 3.0, "bob": None}),
        (By.MODEL, {A100: 3.0, "H100": None}),
        (By.DEPARTMENT, {"research/cv": 3.0, "": None}),
        (By.TIER, {"guaranteed": None, "preemptible": None}),
    ],
    ids=lambda value: str(value) if isinstance(value, By) else "",
)
def test_what_was_held_and_not_used(by, want):
    rows = [*ROWS, row("held_idle", 3 * HOUR, team="vision", user="ada", model=A100, department="research/cv")]
    assert {each.name: each.held_idle for each in usage_by(rows, by)} == want
    assert total(rows).held_idle == 3.0
    assert total(ROWS).held_idle is None
