"""Quantities: exact, rounded up, and refused with a remedy."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.objects import bounds

SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


@given(
    whole=st.integers(0, 10**6),
    part=st.none() | st.text("0123456789", max_size=9),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    sign=st.sampled_from(["", "+", "-"]),
)
def test_every_decimal_with_every_suffix_is_read_exactly_and_rounded_up(whole, part, suffix, sign):
    number = str(whole) if part is None else f"{whole}.{part}"
    want = Fraction(number.rstrip(".")) * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    text = f"{sign}{number}{suffix}"
    if abs(want) > bounds.MAX_VALUE:
        with pytest.raises(ValueError, match="largest amount"):
            bounds.exact(text)
        return
    assert bounds.exact(text) == want
    assert bounds.whole(text) == ceil(want)
    assert bounds.milli(text) == ceil(want * 1000)


@given(st.integers(0, 999), st.integers(-15, 15), st.sampled_from("eE"))
def test_exponents_mean_powers_of_ten(number, exponent, letter):
    assert bounds.exact(f"{number}{letter}{exponent}") == Fraction(number) * Fraction(10) ** exponent


@pytest.mark.parametrize(
    ("resource", "text", "want"),
    [
        ("cpu", "1500m", 1500),
        ("cpu", "0.1", 100),
        ("cpu", "1u", 1),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "1m", 1),
        ("memory", "128974848", 128974848),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", ".5", 1),
        ("nvidia.com/gpu", "2.", 2),
        ("ephemeral-storage", "1E", 10**18),
        ("ephemeral-storage", "1E3", 1000),
    ],
)
def test_each_resource_is_counted_in_its_own_unit(resource, text, want):
    assert bounds.amount(resource, text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "not a quantity"),
        (".", "not a quantity"),
        ("abc", "not a quantity"),
        ("1 Gi", "not a quantity"),
        ("1gi", "not a quantity"),
        ("1Gi\n", "not a quantity"),
        ("1e", "not a quantity"),
        ("--1", "not a quantity"),
        ("NaN", "not a quantity"),
        ("٣", "not a quantity"),
        ("1" * 65, "not a quantity"),
        ("1e31", "exponent"),
        ("1e-99999999", "exponent"),
        ("9223372036854775808", "largest amount"),
        ("8Ei", "largest amount"),
        (float("inf"), "not a quantity"),
    ],
)
def test_malformed_quantities_are_refused_with_a_remedy(text, want):
    with pytest.raises(ValueError, match=want):
        bounds.exact(text)


def test_the_largest_kubernetes_amount_is_read():
    assert bounds.whole("9223372036854775807") == bounds.MAX_VALUE
