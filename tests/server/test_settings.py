import pytest

from tests.server.support.harness import settings_for
from webhook.server.settings import Address, parse_address


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("127.0.0.1:8443", Address("127.0.0.1", 8443)),
        (":8443", Address("", 8443)),
        ("[::1]:8443", Address("::1", 8443)),
        ("[::]:1", Address("::", 1)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_addresses(text, want):
    address = parse_address(text)
    assert address == want
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "8443", "localhost", "localhost:", "localhost:http", "a:-1", "a:65536", "a:٣"])
def test_an_invalid_address_is_an_error_with_examples(text):
    with pytest.raises(ValueError, match=r"expected HOST:PORT such as 127\.0\.0\.1:8443"):
        parse_address(text)


@pytest.mark.parametrize("text", ["::1:8443", "[::1:8443", "[10.0.0.1:]:1", "a:b:1"])
def test_ipv6_goes_in_brackets(text):
    with pytest.raises(ValueError, match="an IPv6 address goes in brackets"):
        parse_address(text)


@pytest.mark.parametrize(
    ("listen", "want"), [("10.0.0.7:1", ("10.0.0.7",)), (":1", ()), ("0.0.0.0:1", ()), ("[::]:1", ())]
)
def test_a_certificate_contains_the_listen_address(tmp_path, listen, want):
    assert settings_for(tmp_path, listen=listen).certificate_terms.hosts == want
