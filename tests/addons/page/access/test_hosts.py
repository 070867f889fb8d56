"""Which Host and Origin are let in: no rebound name, no other site."""

import pytest

from webhook.addons.page.access.access import Hosts

LOCAL, SHARED = Hosts(port=8080), Hosts(frozenset({"gpus.example.com"}))


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"])
def test_this_machine_is_let_in(host):
    assert LOCAL.allows(host)
    assert SHARED.allows(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example:8080", "127.0.0.1.evil.example:8080", "127.0.0.1:9", "localhost", "", "[::1", "gpus.example.com"],
)
def test_other_names_and_ports_are_not(host):
    assert not LOCAL.allows(host)


def test_a_shared_page_has_its_own_names():
    assert SHARED.allows("gpus.example.com")
    assert SHARED.allows("GPUs.example.com:443")
    assert not SHARED.allows("example.com")


@pytest.mark.parametrize(
    ("origin", "site", "want"),
    [
        ("http://127.0.0.1:8080", "same-origin", True),
        ("", "same-origin", True),
        ("", "", True),
        ("https://gpus.example.com", "", False),
        ("http://127.0.0.1:9999", "same-site", False),
        ("null", "cross-site", False),
        ("null", "", False),
        ("http://evil.example", "none", False),
    ],
)
def test_a_form_must_come_from_the_page_itself(origin, site, want):
    assert LOCAL.is_own(origin=origin, site=site, host="127.0.0.1:8080") is want
