"""Which levels of domains a gang is placed in, and in which order they are tried."""

import pytest

from webhook.core.model.constraints import ANYWHERE, DomainRequest, asked_levels, levels_to_try

LEVELS = ("zone", "block", "rack", "host")


def keys(levels):
    return [level.key for level in levels]


@pytest.mark.parametrize(
    ("request_", "tried", "asked"),
    [
        (None, ["host", "rack", "block", "zone"], []),
        (ANYWHERE, [], []),
        (DomainRequest("block", is_required=True), ["host", "rack", "block"], ["block"]),
        (DomainRequest("block"), ["host", "rack", "block", "zone"], ["block", "zone"]),
        (DomainRequest("zone", is_required=True), ["host", "rack", "block", "zone"], ["zone"]),
        (DomainRequest("host", is_required=True), ["host"], ["host"]),
        (DomainRequest("host"), ["host", "rack", "block", "zone"], ["host", "rack", "block", "zone"]),
        (DomainRequest("row", is_required=True), ["row"], ["row"]),
        (DomainRequest("row"), ["row"], ["row"]),
    ],
)
def test_the_smallest_comes_first_and_a_preference_goes_on_to_larger_ones(request_, tried, asked):
    assert keys(levels_to_try(request_, LEVELS)) == tried
    assert keys(asked_levels(request_, LEVELS)) == asked


def test_domains_of_a_level_are_distinguished_by_the_larger_levels():
    (rack,) = asked_levels(DomainRequest("rack", is_required=True), LEVELS)
    assert rack.keys == ("rack", "zone", "block")


def test_without_levels_a_gang_without_a_request_may_be_anywhere():
    assert levels_to_try(None, ()) == ()
