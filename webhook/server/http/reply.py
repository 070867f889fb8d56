"""A JSON response: as one of aiohttp's, or as the bytes of an HTTP/1.1 message."""

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from aiohttp import web

JSON: Final = "application/json"
_JSON_HEADERS: Final = {"Content-Type": JSON}
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Reply(NamedTuple):
    """A JSON body with its status; `headers` are those besides Content-Type, and hold no text of a caller."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = _NO_HEADERS

    def to_response(self) -> web.Response:
        """Return it as a response of aiohttp."""
        return web.Response(body=self.body, status=self.status, headers={**_JSON_HEADERS, **self.headers})

    def encode(self, *, closes: bool) -> bytes:
        """Return the whole message; `closes` announces that the connection is closed after it."""
        more = "".join([f"{name}: {value}\r\n" for name, value in self.headers.items()]) if self.headers else ""
        if closes:
            more += "Connection: close\r\n"
        head = f"{_status_line(self.status)}Content-Length: {len(self.body)}\r\n{more}{_date(int(time.time()))}\r\n"
        return head.encode("ascii") + self.body


@lru_cache(maxsize=32)
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {JSON}\r\n"


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return f"Date: {formatdate(second, usegmt=True)}\r\n"
