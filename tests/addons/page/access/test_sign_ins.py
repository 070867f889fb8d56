"""Tries count for ten seconds, by the client that a proxy names and by the address."""

import pytest

from tests.kept import kept
from webhook.addons.page.access.access import OF_CLIENT, SECONDS, Origin, TooManySignInsError, Tries


@pytest.mark.parametrize(
    ("forwarded", "want"),
    [
        ("", ""),
        ("203.0.113.1", "203.0.113.1"),
        ("made up, 203.0.113.1", "203.0.113.1"),
        ("x" * 1000, "x" * 64),
    ],
)
def test_a_client_is_the_last_that_is_named(forwarded, want):
    assert Origin.of("10.0.0.1", forwarded) == ("10.0.0.1", want)


def test_tries_count_for_ten_seconds():
    tries = Tries()
    for second in range(OF_CLIENT):
        tries.begin(Origin("a"), now=second / OF_CLIENT)
    with pytest.raises(TooManySignInsError):
        tries.begin(Origin("a"), now=SECONDS - 1)
    for _ in range(OF_CLIENT):
        tries.begin(Origin("a"), now=SECONDS + 1)
    with pytest.raises(TooManySignInsError):
        tries.begin(Origin("a"), now=SECONDS + 2)


def test_a_try_that_turned_out_to_be_valid_counts_no_more_and_leaves_nothing():
    tries = Tries()
    for number in range(1000):
        tries.forgive(tries.begin(Origin("a"), now=number / 1000))
    assert kept(tries) < 20
