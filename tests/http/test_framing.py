"""Where requests begin and end, whatever pieces their bytes come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.http.connections import Arriving, Framing

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"
CHUNKS = b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"


def fed(*pieces):
    framing = Framing()
    for piece in pieces:
        framing.feed(piece)
    return framing


@pytest.mark.parametrize(
    ("pieces", "want"),
    [
        pytest.param([b"G"], Arriving.HEAD, id="the first byte"),
        pytest.param([GET[:-2]], Arriving.HEAD, id="a head without its end"),
        pytest.param([GET], Arriving.NOTHING, id="a whole request without a body"),
        pytest.param([POST[:-1]], Arriving.BODY, id="a body without its last byte"),
        pytest.param([POST], Arriving.NOTHING, id="a whole request with a body"),
        pytest.param([CHUNKS[:-2]], Arriving.BODY, id="chunks without their end"),
        pytest.param([CHUNKS], Arriving.NOTHING, id="a whole request in chunks"),
        pytest.param([b"\r\n"], Arriving.HEAD, id="a line feed instead of a request"),
        pytest.param([GET, b"\r\n" * 10], Arriving.HEAD, id="line feeds after a request"),
        pytest.param([b"\x16\x03\x01"], Arriving.NOT_HTTP, id="TLS"),
        pytest.param([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], Arriving.NOT_HTTP, id="HTTP/2"),
        pytest.param([GET[:-2] + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n"], Arriving.NOT_HTTP, id="an upgrade"),
    ],
)
def test_what_part_of_a_request_is_starting(pieces, want):
    assert fed(*pieces).arriving is want


def test_what_is_no_http_stays_so():
    assert fed(b"\x00", GET).arriving is Arriving.NOT_HTTP
    assert fed(b"\x00", GET).heads == 0


@given(st.lists(st.sampled_from([GET, POST, CHUNKS]), max_size=5), st.data())
@examples(100)
def test_requests_are_counted_however_they_are_cut(requests, data):
    sent = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True) if end > start]
    framing = fed(*pieces)
    assert (framing.heads, framing.ends) == (len(requests), len(requests))
    assert framing.arriving is Arriving.NOTHING


def test_the_bytes_of_an_incomplete_head_are_counted():
    framing = fed(POST, GET[:10])
    assert framing.arriving is Arriving.HEAD
    framing.feed(b"x" * 100)
    assert framing.head_bytes >= 100
