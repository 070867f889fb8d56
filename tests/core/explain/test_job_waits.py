"""Waits of jobs by size: classes, groups and percentiles."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.explain.line_rows import BOUNDS, SIZES, bound_of, percentiles, percentiles_of, size_of


@pytest.mark.parametrize(
    ("gpus", "want"),
    [(0, "none"), (0.001, "part of 1"), (0.5, "part of 1"), (1, "1"), (1.5, "2"), (3, "3-4"), (8, "5-8"),
     (9, "9-64"), (65, "65 and more"), (10**6, "65 and more")],
)  # fmt: skip
def test_sizes_have_classes(gpus, want):
    assert size_of(gpus) == want
    assert want in SIZES


@pytest.mark.parametrize(("percent", "want"), [(50, 2), (90, 4), (99, 4)])
def test_a_percentile_is_the_smallest_wait_that_so_many_do_not_exceed(percent, want):
    assert dict(zip((50, 90, 99), percentiles([4, 3, 2, 1])[1:], strict=True))[percent] == want


def test_without_jobs_nothing_is_known():
    assert percentiles([]) == (0, None, None, None)


def test_a_wait_without_an_end_is_no_number():
    assert percentiles([1, math.inf, 3]) == (3, 3, None, None)


@given(st.lists(st.floats(0, 10**6), min_size=1, max_size=40))
def test_percentiles_of_groups_are_the_upper_bounds_of_exact_ones(waits):
    exact, grouped = percentiles(waits), percentiles_of(Counter(map(bound_of, waits)))
    assert grouped.jobs == exact.jobs == len(waits)
    for value, bound in zip(exact[1:], grouped[1:], strict=True):
        group = bound_of(value)
        assert group in BOUNDS
        assert bound == (None if math.isinf(group) else group)
