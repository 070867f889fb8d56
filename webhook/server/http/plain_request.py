"""Reads the head of a plain POST, as API servers send reviews. Pure.

Plain is: HTTP/1.1, a short head of headers that mean nothing for the framing, each at most once, and a small JSON body
of a declared length. Anything else is for aiohttp, which reads all of HTTP, has the limits and makes the errors. What
is accepted here must be a subset of what aiohttp accepts, with the same meaning: httptools parses the head, and the
head is plain only if its lines, taken as they are written, say the same.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from webhook.server.http.bodies import SMALL_BYTES
from webhook.server.http.request_target import RequestTarget, parse_target

MAX_HEAD_BYTES: Final = 1024
"""Longer heads are not plain. An API server's has some 250 bytes, and 512 of these are kept with their meaning."""

_END: Final = b"\r\n\r\n"
_WRITTEN: Final = re.compile(rb"[!-~](?:[ -~]*[!-~])?")
_LENGTH: Final = re.compile(rb"[0-9]{1,5}")
_REQUIRED: Final = frozenset({b"host", b"content-length", b"content-type"})
_HARMLESS: Final = _REQUIRED | {
    *(b"user-agent", b"accept", b"accept-encoding", b"authorization", b"traceparent", b"tracestate")
}


class PlainHead(NamedTuple):
    """The head of a plain POST: its target as sent and parsed, and the bytes of the whole message."""

    raw_target: str
    target: RequestTarget
    body_starts: int
    ends: int


def plain_head(data: bytes) -> PlainHead | None:
    """Return the head that a message begins with, or None if it is incomplete or not plain."""
    end = data.find(_END, 0, MAX_HEAD_BYTES)
    return None if end < 0 else _read(data[:end])


class _Head:
    """What the parser reads of a head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self.headers.append((name, value))


@lru_cache(maxsize=512)  # an API server's heads differ in the length of the body only
def _read(head: bytes) -> PlainHead | None:
    found = _Head()
    parser = HttpRequestParser(found)
    try:
        parser.feed_data(head + _END)
    except (HttpParserError, HttpParserUpgrade):
        return None
    first, *lines = head.split(b"\r\n")
    headers = {name.lower(): value for name, value in found.headers}
    if (
        first != b"POST %s HTTP/1.1" % found.url
        or not found.url.startswith(b"/")
        or not _WRITTEN.fullmatch(found.url)
        or len(headers) < len(lines)
        or list(map(_as_written, lines)) != found.headers
        or not _REQUIRED <= headers.keys() <= _HARMLESS
    ):
        return None
    length = headers[b"content-length"]
    is_json = headers[b"content-type"] == b"application/json"
    if not is_json or not _LENGTH.fullmatch(length) or int(length) > SMALL_BYTES:
        return None
    starts, target = len(head) + len(_END), found.url.decode("ascii")
    return PlainHead(target, parse_target(target), starts, starts + int(length))


def _as_written(line: bytes) -> tuple[bytes, bytes]:
    """Return the name and the value of a line; nothing for one that is not NAME: VALUE in printable ASCII."""
    name, _, value = line.partition(b":")
    value = value.removeprefix(b" ")
    return (name, value) if _WRITTEN.fullmatch(value) else (b"", b"")
