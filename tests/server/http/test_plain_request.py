"""Which requests are read without aiohttp: only those that aiohttp reads in the same way."""

import asyncio

import pytest
from aiohttp.http import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.server.http.handlers import SMALL_BYTES
from webhook.server.http.plain_reviews import MAX_HEAD_BYTES, plain_head

GO = (
    b"POST /mutate?timeout=3s HTTP/1.1\r\nHost: fairgate.fairgate-system.svc:443\r\n"
    b"User-Agent: kube-apiserver-admission\r\nContent-Length: 5\r\nAccept: application/json, */*\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


def test_the_head_of_an_api_server_is_plain():
    head = plain_head(GO + b"12345")
    assert (head.raw_target, head.target.path) == ("/mutate?timeout=3s", "/mutate")
    assert (head.body_starts, head.ends) == (len(GO), len(GO) + 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"POST ", b"GET ", id="another method"),
        pytest.param(b"HTTP/1.1", b"HTTP/1.0", id="an older version"),
        pytest.param(b"POST /", b"POST  /", id="two spaces"),
        pytest.param(b"POST /", b"POST https://x/", id="an absolute target"),
        pytest.param(b"POST /mutate", b"POST /mut\xc3\xa4te", id="a target that is not ASCII"),
        pytest.param(b"Length: 5", b"Length: -5", id="a negative length"),
        pytest.param(b"Length: 5", b"Length: +5", id="a signed length"),
        pytest.param(b"Length: 5", b"Length: 0x5", id="a length that is no decimal"),
        pytest.param(b"Length: 5", b"Length: 5, 5", id="two lengths in one header"),
        pytest.param(b"Length: 5\r\n", b"Length: 5\r\nContent-Length: 5\r\n", id="a header twice"),
        pytest.param(b"Length: 5", b"Length: %d" % (SMALL_BYTES + 1), id="a large body"),
        pytest.param(b"Content-Length: 5\r\n", b"", id="no length"),
        pytest.param(b"Content-Length: 5", b"Transfer-Encoding: chunked", id="chunks"),
        pytest.param(b"Accept-Encoding: gzip", b"Transfer-Encoding: chunked", id="chunks beside a length"),
        pytest.param(b"Accept-Encoding: gzip", b"Content-Encoding: gzip", id="a compressed body"),
        pytest.param(b"Accept-Encoding: gzip", b"Expect: 100-continue", id="a client that waits"),
        pytest.param(b"Accept-Encoding: gzip", b"Connection: close", id="a connection that is to be closed"),
        pytest.param(b"Accept-Encoding: gzip", b"Upgrade: h2c", id="an upgrade"),
        pytest.param(b"application/json\r\nAccept-E", b"text/plain\r\nAccept-E", id="another content"),
        pytest.param(b"Host: ", b"Host : ", id="a space before the colon"),
        pytest.param(b"Host: ", b" Host: ", id="a folded line"),
        pytest.param(b"gzip\r\n", b"gzip\r\n more\r\n", id="a value over two lines"),
        pytest.param(b"gzip", b"gz\nip", id="a line feed alone"),
        pytest.param(b"gzip", b"gz\rip", id="a carriage return alone"),
        pytest.param(b"gzip", b"gz\x00ip", id="a zero byte"),
        pytest.param(b"Host: fairgate", b"Host: " + b"f" * MAX_HEAD_BYTES, id="a long head"),
        pytest.param(b"\r\n\r\n", b"\r\n", id="a head that is not complete"),
        pytest.param(b"Host: fairgate.fairgate-system.svc:443\r\n", b"", id="no host"),
    ],
)
def test_all_else_is_left_to_aiohttp(old, new):
    assert old in GO
    assert plain_head(GO.replace(old, new) + b"12345") is None


class FakeProtocol:
    """What aiohttp's parser needs of a connection."""

    _reading_paused = False

    def resume_reading(self, *, resume_parser=True):
        """Nothing is ever paused: no body is large enough."""


def aiohttp_reads(data):
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(
            FakeProtocol(), loop, 2**16, max_line_size=8190, max_field_size=8190, auto_decompress=False
        )
        messages, _, rest = parser.feed_data(data)
    finally:
        loop.close()
    return messages, rest


HEADERS = [
    b"Host: x",
    b"host:x",
    b"Content-Length: 5",
    b"Content-Length: 005",
    b"content-length:5",
    b"Content-Length: 5 ",
    b"Content-Type: application/json",
    b"content-TYPE:  application/json",
    b"Content-Type: application/json\t",
    b"Accept: */*",
    b"Authorization: Bearer a b",
    b"Traceparent: 00-1-2-01",
    b"Connection: keep-alive",
    b"Transfer-Encoding: chunked",
    b"X:",
    b": x",
    b" folded",
    b"",
]
LINES = st.sampled_from(
    [b"POST /mutate HTTP/1.1", b"POST /mutate?timeout=3s HTTP/1.1", b"POST * HTTP/1.1", b"GET / HTTP/1.1"]
)


FEW = [b"Host: x", b"Content-Length: 5", b"Content-Type: application/json"]


@given(
    LINES,
    st.lists(st.sampled_from(HEADERS), max_size=2).flatmap(lambda more: st.permutations([*FEW, *more])),
    st.integers(0, 3),
    st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"]),
)
@examples(300)
def test_what_is_plain_is_read_by_aiohttp_in_the_same_way(first, headers, left_out, newline):
    data = newline.join([first, *headers[left_out // 3 :], b"", b""]) + b"12345"
    head = plain_head(data)
    if head is None:
        return
    assert head.ends <= len(data)
    ((message, body),), rest = aiohttp_reads(data[: head.ends])
    assert (message.method, message.path, message.version) == ("POST", head.raw_target, (1, 1))
    assert not message.should_close
    assert not message.chunked
    assert not message.upgrade
    assert not message.compression
    assert (body.is_eof(), body.total_bytes, rest) == (True, 5, b"")
