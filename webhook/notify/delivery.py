"""One HTTP request to a target: verified TLS, no redirects, no proxy, bounded in time; no body of a response is read.

No text has the address, a header or what the receiver answers: each may contain a secret.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from webhook import __version__
from webhook.core.model.notify_rules import NotifyTarget
from webhook.notify.secret_files import SecretError, read_line, read_secret
from webhook.policy.notify import parse_url

SECONDS: Final = 10.0
"""How long a request may take, connecting included."""

MAX_HEADERS: Final = 8190
_HOPELESS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.GONE,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""Answers after which the same message would fail again."""


class DeliveryError(Exception):
    """A target did not accept a message; the text says why. With `is_hopeless`, it never will."""

    def __init__(self, text: str, *, is_hopeless: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.is_hopeless = is_hopeless
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class _Receiver:
    """A target with its secrets read."""

    url: str
    headers: dict[str, str]
    tls: ssl.SSLContext | None


class Delivery:
    """Sends to targets. `secrets` is the folder that policy's file names are of."""

    def __init__(self, secrets: Path | None, *, seconds: float = SECONDS) -> None:
        self._secrets = secrets
        self._seconds = seconds
        self._contexts: dict[bytes, ssl.SSLContext] = {}

    async def send(self, target: NotifyTarget, body: bytes) -> None:
        """Send a message. Raises DeliveryError."""
        receiver = await self._prepared(target)
        try:
            async with asyncio.timeout(self._seconds), _session() as session:
                request = session.post(
                    receiver.url, data=body, headers=receiver.headers, ssl=receiver.tls or True, allow_redirects=False
                )
                response = await request
                try:
                    _check(response)
                finally:
                    response.close()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise DeliveryError(_why(error, self._seconds)) from None

    async def why_unreachable(self, target: NotifyTarget) -> str | None:
        """Return why a target cannot be reached, or None: by a connection that sends no request."""
        try:
            receiver = await self._prepared(target)
            parts = parse_url(receiver.url)
            port = parts.port or (443 if receiver.tls else 80)
            async with asyncio.timeout(self._seconds):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=receiver.tls)
                writer.transport.abort()
        except DeliveryError as error:
            return str(error)
        except (OSError, ValueError) as error:
            return _why(error, self._seconds)
        return None

    async def _prepared(self, target: NotifyTarget) -> _Receiver:
        try:
            return await asyncio.to_thread(self._prepare, target)
        except (SecretError, ssl.SSLError) as error:
            reason = f"file {target.ca_file}: no readable CA (PEM)" if isinstance(error, ssl.SSLError) else error
            raise DeliveryError(str(reason)) from None

    def _prepare(self, target: NotifyTarget) -> _Receiver:
        """Read the files of a target, in a thread: also the system's CAs take milliseconds."""
        url, headers = target.url, {"Content-Type": "application/json", "User-Agent": f"fairgate/{__version__}"}
        if target.url_file:
            url = read_line(self._secrets, target.url_file)
        try:
            is_tls = parse_url(url).scheme == "https"
        except ValueError as error:
            raise SecretError(f"file {target.url_file}: {error}") from None
        if (secret := target.header) is not None:
            if not is_tls:
                raise SecretError(f"file {target.url_file}: an http address, which would send a secret in clear text")
            headers[secret.name] = secret.prefix + read_line(self._secrets, secret.file)
        ca = read_secret(self._secrets, target.ca_file) if target.ca_file else b""
        return _Receiver(url, headers, self._context(ca) if is_tls else None)

    def _context(self, ca: bytes) -> ssl.SSLContext:
        """Return a context that trusts these CAs only, or those of the system."""
        found = self._contexts.get(ca)
        if found is None:
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.clear()
            try:
                found = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
                # private CAs often lack the key identifiers that Python 3.13 asks for
                found.verify_flags &= ~ssl.VERIFY_X509_STRICT
            except UnicodeDecodeError:
                raise ssl.SSLError from None
            self._contexts[ca] = found
        return found


_CONTEXTS: Final = 32
"""Contexts that are kept: a few for each target, since CAs are rotated."""


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        max_line_size=MAX_HEADERS,
        max_field_size=MAX_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None),
    )


def _check(response: aiohttp.ClientResponse) -> None:
    status = response.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise DeliveryError(f"HTTP {status}: redirects are not followed")
    retry_after = response.headers.get("Retry-After", "")
    wait = float(retry_after[:6]) if retry_after[:6].isascii() and retry_after[:6].isdecimal() else 0.0
    raise DeliveryError(f"HTTP {status}", is_hopeless=status in _HOPELESS, retry_after=wait)


def _why(error: Exception, seconds: float) -> str:
    """Return what failed, without the address."""
    match error:
        case TimeoutError():
            return f"no answer within {seconds:g} s"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            inner = getattr(error, "certificate_error", error)
            return f"its certificate is not trusted: {getattr(inner, 'verify_message', 'it does not fit')}"
        case aiohttp.ClientConnectorDNSError():
            return "its name cannot be resolved"
        case ssl.SSLError() | aiohttp.ClientSSLError():
            return "TLS fails"
        case aiohttp.ClientConnectorError():
            return f"no connection: {_strerror(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case OSError():
            return f"no connection: {_strerror(error)}"
        case _:
            return "no valid HTTP answer"


def _strerror(error: OSError) -> str:
    """Return what the system says; the text of the error has the address."""
    return os.strerror(error.errno) if error.errno is not None else "several addresses were tried"
