"""GPU amounts: exact in, exact out."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.amounts import (
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
def test_parses_usual_amounts(text, want):
    assert Fraction(parse_gpus(text), ONE_GPU) == want


@pytest.mark.parametrize("text", ["-1", "1/0", "NaN", "inf", "eight", "", "1/9", "0.0000001"])
def test_rejects_inexact_amounts(text):
    with pytest.raises(ValueError, match=r"GPUs|counted"):
        parse_gpus(text)


@given(st.integers(0, 10**9))
def test_formatted_amounts_parse_to_the_same_value(units):
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
def test_messages_show_fractions_up_to_sixteenths(units, want):
    assert gpus_text(units) == want


@given(st.builds(Fraction, st.integers(0, 10**9), st.integers(1, 10**6)))
def test_amounts_that_no_unit_divides_are_formatted_exactly_and_parsed_back(units):
    assert parse_amount(format_gpus(units)) == units


@pytest.mark.parametrize("text", ["", "-1", "1e9", "1/0", "inf", "1" * 101, "1 /2", "\u0661"])
def test_invalid_amounts_are_rejected(text):
    with pytest.raises(ValueError, match="not an amount"):
        parse_amount(text)
