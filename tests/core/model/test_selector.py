"""Selectors, terms, taints and tolerations against a plain reference."""

import pytest

from webhook.core.model.selector import (
    integer,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("12", 12),
        ("-4", -4),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("1_000", None),
        (" 1", None),
        ("+-1", None),
        ("\u0661", None),
        ("", None),
        ("9" * 100_000, None),
    ],
)
def test_integers_are_those_of_kubernetes(text, want):
    assert integer(text) == want
