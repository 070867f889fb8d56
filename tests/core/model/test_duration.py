"""Durations as Go writes them."""

import pytest

from webhook.core.model.amounts import parse_seconds


@pytest.mark.parametrize(
    ("text", "want"), [("30s", 30), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("0", 0), ("0s", 0)]
)
def test_it_is_read_as_go_writes_it(text, want):
    assert parse_seconds(text) == want


@pytest.mark.parametrize(
    "text", ["", "soon", "-2h", "2 hours", "2d", "2H", "h", "1h 30m", "1e3s", "2h\n", "٣h", "1" * 40 + "h", "0.3s"]
)
def test_anything_else_is_an_error_that_says_what_is_expected(text):
    with pytest.raises(ValueError, match="expected"):
        parse_seconds(text)
