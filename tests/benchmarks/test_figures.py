"""The figures of the comparison with other systems: fair shares, gaps to them, slots that were unused."""

import pytest

from benchmarks.side_by_side.figures import Change, fair_gap, fair_split, per_second, quantile, slot_waits


@pytest.mark.parametrize(
    ("total", "demands", "want"),
    [
        pytest.param(9, {"a": 9, "b": 9, "c": 9}, {"a": 3, "b": 3, "c": 3}, id="equal parts"),
        pytest.param(9, {"a": 9, "b": 1, "c": 9}, {"a": 4, "b": 1, "c": 4}, id="no more than is asked for"),
        pytest.param(9, {"a": 2, "b": 1}, {"a": 2, "b": 1}, id="all that is asked for"),
        pytest.param(9, {}, {}, id="no team"),
    ],
)
def test_gpus_are_split_between_teams_of_equal_weight(total, demands, want):
    assert fair_split(total, demands) == want


def test_first_come_first_served_leaves_a_gap_between_teams_with_unequal_demand():
    asked = [Change(0, "a", 8, 0), Change(0, "b", 2, 0)]
    started = [Change(1, "a", -4, 4), Change(3, "b", -2, 2), Change(5, "a", 0, -4), Change(6, "b", 0, -2)]
    found = fair_gap([*asked, *started])
    # For two seconds b had none of 4 GPUs that ran; for two it had all 2 that it asked for; for one a had none of 2.
    assert found.largest == 2
    assert found.mean == pytest.approx((2 * 2 + 2 * 0 + 1 * 1) / 6)


def test_a_team_that_asks_for_nothing_has_no_gap():
    assert (
        fair_gap([Change(0, "a", 4, 0), Change(0, "b", 0, 0), Change(1, "a", -4, 4), Change(2, "a", 0, -4)]).largest
        == 0
    )
    assert fair_gap([]).largest == 0


def test_each_slot_that_came_free_is_unused_until_the_next_start():
    started = [0.0, 0.1, 5.2, 6.5]  # two slots
    ended = [6.0, 5.0, 9.0]
    assert slot_waits(ended, started, slots=2) == pytest.approx([0.2, 0.5])


def test_a_start_that_was_seen_before_the_end_that_made_room_counts_as_at_once():
    assert slot_waits([5.0], [0.0, 4.9], slots=1) == [0.0]


def test_rates_and_quantiles():
    assert per_second([3.0, 1.0, 2.0]) == 1.0
    assert per_second([1.0]) == per_second([]) == per_second([1.0, 1.0]) == 0.0
    assert quantile([], 0.5) is None
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 1) == 3.0
