"""Likely starts as values."""

from webhook.core.explain.line_places import UnknownStart, no_forecast


def test_without_a_forecast_a_start_is_unknown_and_says_so():
    assert no_forecast("uid") == UnknownStart("nothing was forecast")
