"""One HTTP request to a target, with its secrets: verified TLS, no redirects, no proxy, bounded in time.

Secrets are files of a mounted folder, read for each message, so that a rotated Secret is used at once. Policy gives
names of files in this folder, and no path: who may edit the policy must not be able to send another file, such as the
ServiceAccount's token, to an address of their choice. No text has the address, a header or what the receiver answers:
each may contain a secret.
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
from webhook.core.model.policy_addons import NotifyTarget
from webhook.policy.addons import parse_url

MAX_BYTES: Final = 256 * 1024
"""A bundle of all public CAs has 200 KiB."""


class SecretError(Exception):
    """A file of the folder cannot be used; the text names it, and nothing of its content."""


def read_secret(folder: Path | None, name: str) -> bytes:
    """Return the content of a file, at most MAX_BYTES. Raises SecretError."""
    if folder is None:
        raise SecretError(f"file {name}: this process has no folder of secrets (--notify-secrets)")
    path = folder / name
    try:
        # a mounted Secret has links to its own hidden folder
        if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            raise SecretError(f"file {name} leads out of the folder of secrets")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"file {name} of the folder of secrets: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise SecretError(f"file {name} of the folder of secrets is larger than {MAX_BYTES:,} bytes")
    return content


def read_line(folder: Path | None, name: str) -> str:
    """Return the only line of a file, as for a header. Raises SecretError."""
    content = read_secret(folder, name).strip()
    if not content or not content.isascii() or not content.decode().isprintable():
        raise SecretError(f"file {name} of the folder of secrets: expected one line of printable ASCII characters")
    return content.decode()


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
        return _Receiver(url, headers, _context(ca) if is_tls else None)


def _context(ca: bytes) -> ssl.SSLContext:
    """Return a context that trusts these CAs only, or those of the system."""
    try:
        found = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    except UnicodeDecodeError:
        raise ssl.SSLError from None
    found.verify_flags &= (
        ~ssl.VERIFY_X509_STRICT
    )  # private CAs often lack the key identifiers that Python 3.13 asks for
    return found


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
