"""HTTP around a review: the caller, the target, replies and errors.

The exception for a request that gets an HTTP error response.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from aiohttp import web

from webhook.server.settings import StartupError


class HttpError(Exception):
    """A request that gets an HTTP error response; `code` is for programs, `text` for people.

    With `retry_after_seconds` the API server retries by itself, within its own timeout.
    """

    def __init__(self, status: int, code: str, text: str, *, retry_after_seconds: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.retry_after_seconds = retry_after_seconds


# Client authentication of reviews: none, or a client certificate of certain CAs.
#
# The certificate is requested in every handshake and required only for reviews: kubelets, which probe, and most
# Prometheus servers have none. A certificate of other CAs ends the handshake.


def request_certificates(context: ssl.SSLContext, client_ca: Path) -> None:
    """Request a certificate of the CAs in a file from every client. Raises StartupError for a file without CAs."""
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as exc:
        why = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "no PEM certificates in it"
        raise StartupError(f"client CA {client_ca} cannot be used: {why}") from exc
    # Cluster CAs often lack the extensions that Python 3.13 requires by default, and no other server requires them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_mode = ssl.CERT_OPTIONAL


def check_caller(transport: asyncio.BaseTransport | None) -> None:
    """Raise HttpError for a request over a connection without a client certificate."""
    if transport is None or not transport.get_extra_info("peercert"):
        text = "send a client certificate of the CA in --client-ca; only the API server may send reviews"
        raise HttpError(403, "CertificateRequired", text)


# A JSON response: as one of aiohttp's, or as the bytes of an HTTP/1.1 message.


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


# Parses a request's target: its path, and how long the caller waits. Pure.


DEFAULT_TIMEOUT_SECONDS: Final = 10.0
"""Kubernetes' default of timeoutSeconds, for requests without a timeout."""

MAX_TIMEOUT_SECONDS: Final = 30.0
"""The largest timeoutSeconds that a webhook configuration allows."""

WORKING_SHARE: Final = 0.8
"""The share of the caller's timeout that may be used: the response has to arrive within it."""

_UNIT_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """A parsed target. `timeout_problem` is why its timeout is invalid; otherwise `work_seconds` may be used."""

    path: str
    work_seconds: float
    timeout_problem: str = ""


@lru_cache(maxsize=256)  # API servers repeat a few targets; others are evicted from the cache
def parse_target(raw: str) -> RequestTarget:
    """Split the raw target of a request line."""
    path, _, query = raw.partition("?")
    timeouts = parse_qs(query, keep_blank_values=True).get("timeout") if query else None
    if not timeouts:
        return RequestTarget(path=path, work_seconds=DEFAULT_TIMEOUT_SECONDS * WORKING_SHARE)
    try:
        seconds = parse_duration(timeouts[0])
    except ValueError as exc:
        return RequestTarget(path=path, work_seconds=0.0, timeout_problem=f"timeout: {exc}")
    return RequestTarget(path=path, work_seconds=min(seconds, MAX_TIMEOUT_SECONDS) * WORKING_SHARE)


def parse_duration(text: str) -> float:
    """Return the seconds of a positive Go duration such as 5s, 500ms or 1m30s. Raises ValueError."""
    seconds, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        seconds += float(part[1]) * _UNIT_SECONDS[part[2]]
        at = part.end()
    if at < len(text) or seconds <= 0:
        raise ValueError(f"expected a positive duration such as 5s, 500ms or 1m30s, got {text[:40]!r}")
    return seconds
