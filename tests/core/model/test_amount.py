"""GPU amounts: exact in, exact out."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.amount import (
    ONE_GPU,
    UNLIMITED,
    exceeds,
    format_gpus,
    format_limit,
    gpus_text,
    parse_amount,
    parse_gpus,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("8", 8),
        ("2.5", Fraction(5, 2)),
        (0.125, Fraction(1, 8)),
        ("1/7", Fraction(1, 7)),
        (0, 0),
        ("0.001", Fraction(1, 1000)),
    ],
)
def test_reads_what_people_write(text, want):
    assert Fraction(parse_gpus(text), ONE_GPU) == want


@pytest.mark.parametrize("text", ["-1", "1/0", "NaN", "inf", "eight", "", "1/9", "0.0000001"])
def test_refuses_what_cannot_be_counted(text):
    with pytest.raises(ValueError, match=r"GPUs|counted"):
        parse_gpus(text)


@given(st.integers(0, 10**9))
def test_what_is_written_reads_back_the_same(units):
    assert parse_gpus(format_gpus(units)) == units


def test_unlimited_is_a_word_and_nothing_exceeds_it():
    assert format_limit(UNLIMITED) == "unlimited"
    assert not exceeds(10**12, UNLIMITED)
    assert exceeds(3, 2)


@pytest.mark.parametrize(
    ("units", "want"),
    [
        (8 * ONE_GPU, "8"),
        (ONE_GPU // 8, "0.125"),
        (3 * ONE_GPU // 7, "3/7"),
        (5 * ONE_GPU // 16, "5/16"),
        (ONE_GPU + 2 * ONE_GPU // 7, "about 1.29"),
        (9 * ONE_GPU // 28, "about 0.32"),
        (30_761, "about 0.037"),
        (1, "less than 0.001"),
        (10 * ONE_GPU - 1, "about 10"),
        (12_345 * ONE_GPU + 1, "about 12345"),
    ],
)
def test_people_are_told_fractions_only_as_far_as_they_read_them(units, want):
    assert gpus_text(units) == want


@given(st.builds(Fraction, st.integers(0, 10**9), st.integers(1, 10**6)))
def test_what_no_unit_divides_is_written_exactly_and_read_back(units):
    assert parse_amount(format_gpus(units)) == units


@pytest.mark.parametrize("text", ["", "-1", "1e9", "1/0", "inf", "1" * 101, "1 /2", "\u0661"])
def test_what_is_no_amount_is_not_read_back(text):
    with pytest.raises(ValueError, match="no amount"):
        parse_amount(text)
