"""Reads the head of a plain POST, as API servers send reviews. Pure.

Plain is: HTTP/1.1, a short head of headers that mean nothing for the framing, each at most once, and a small JSON body
of a declared length. Anything else is for aiohttp, which reads all of HTTP, has the limits and makes the errors. What
is accepted here must be a subset of what aiohttp accepts, with the same meaning.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.server.http.bodies import SMALL_BYTES
from webhook.server.http.request_target import Target, parse_target

MAX_HEAD_BYTES: Final = 1024
"""Longer heads are not plain. An API server's has some 250 bytes, and 512 of these are kept with their meaning."""

_REQUEST_LINE: Final = re.compile(r"POST (/[!-~]*) HTTP/1\.1")
_HEADER: Final = re.compile(r"([A-Za-z-]+): ?([!-~](?:[ -~]*[!-~])?)")
_LENGTH: Final = re.compile(r"[0-9]{1,5}")
_REQUIRED: Final = frozenset({"host", "content-length", "content-type"})
_HARMLESS: Final = _REQUIRED | {"user-agent", "accept", "accept-encoding", "authorization", "traceparent", "tracestate"}


class PlainHead(NamedTuple):
    """The head of a plain POST: its target as sent and parsed, and the bytes of the whole message."""

    raw_target: str
    target: Target
    body_starts: int
    ends: int


def plain_head(data: bytes) -> PlainHead | None:
    """Return the head that a message begins with, or None if it is incomplete or not plain."""
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
    return None if end < 0 else _read(data[:end])


@lru_cache(maxsize=512)  # an API server's heads differ in the length of the body only
def _read(head: bytes) -> PlainHead | None:
    if not head.isascii():
        return None
    first, *lines = head.decode("ascii").split("\r\n")
    request = _REQUEST_LINE.fullmatch(first)
    found = [_HEADER.fullmatch(line) for line in lines]
    headers = {match[1].lower(): match[2] for match in found if match is not None}
    if request is None or len(headers) < len(lines) or not _REQUIRED <= headers.keys() <= _HARMLESS:
        return None
    length = headers["content-length"]
    if headers["content-type"] != "application/json" or not _LENGTH.fullmatch(length) or int(length) > SMALL_BYTES:
        return None
    starts = len(head) + len(b"\r\n\r\n")
    return PlainHead(request[1], parse_target(request[1]), starts, starts + int(length))
