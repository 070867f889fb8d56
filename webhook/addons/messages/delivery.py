"""A message: its text, its target's secrets, and its delivery.

A message, field by field: the stable format `fairgate.dev/notify/v1`, and what it is made of.

Texts are cut to a fixed length and have no control characters: tenants name pods, users and workloads.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, assert_never

import aiohttp
import msgspec

from webhook import __version__
from webhook.core.model.amounts import printable, shortened
from webhook.core.model.policy_addons import NotifyKind, NotifyTarget, NotifyTemplate
from webhook.policy.addons import parse_url

SCHEMA: Final = "fairgate.dev/notify/v1"
MAX_ITEMS: Final = 20
MAX_TEXT: Final = 500
MAX_NAME: Final = 253


class Severity(StrEnum):
    """How urgent it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    """Whether something happened, or a state began, lasts, or ended."""

    HAPPENED = "happened"
    BEGAN = "began"
    LASTS = "lasts"
    ENDED = "ended"


class Subject(NamedTuple):
    """What a message is about: its kind, and the name of a team, department or condition."""

    kind: NotifyKind
    name: str


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing of a message, such as an evicted pod."""

    text: Annotated[str, msgspec.Meta(description="what it is, with the reason and the numbers")]
    at: Annotated[str, msgspec.Meta(description="when it happened; left out for a state")] = ""
    namespace: Annotated[str, msgspec.Meta(description="of a pod")] = ""
    name: Annotated[str, msgspec.Meta(description="of a pod")] = ""
    gpus: Annotated[str, msgspec.Meta(description="GPUs that it is about, as in 2, 0.5 or 3/7")] = ""


class State(NamedTuple):
    """A state of a subject that lasts until it is no longer reported.

    It is news once it lasts for `settle_seconds`, and when its `key` changes; other numbers are not.
    """

    severity: Severity
    summary: str
    items: tuple[Item, ...] = ()
    key: str = ""
    settle_seconds: float = 0.0


class MessageSubject(msgspec.Struct, frozen=True):
    """What a message is about; there is at most one message of one subject in an interval."""

    kind: NotifyKind
    name: Annotated[str, msgspec.Meta(description="the team, `department NAME`, or the condition that does not hold")]


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message to people."""

    schema: Annotated[str, msgspec.Meta(description=f"the format: always {SCHEMA}; new fields may come, none goes")]
    id: Annotated[str, msgspec.Meta(description="the same when a message is sent again after a failure")]
    cluster: Annotated[str, msgspec.Meta(description="notify.cluster of the policy; empty if that is not set")]
    sender: Annotated[str, msgspec.Meta(description="the process that sends it")]
    created_at: Annotated[str, msgspec.Meta(description="RFC 3339, UTC")]
    subject: MessageSubject
    phase: Annotated[Phase, msgspec.Meta(description="happened; or of a state: began, lasts, ended")]
    severity: Severity
    summary: Annotated[str, msgspec.Meta(description="one line of text")]
    since: Annotated[str, msgspec.Meta(description="the first of what happened, or when the state began; RFC 3339")]
    until: Annotated[
        str, msgspec.Meta(description="when the state ended, or is over unless another message comes; RFC 3339")
    ]
    count: Annotated[int, msgspec.Meta(description="how much happened since the last message; 1 for a state")]
    items: Annotated[list[Item], msgspec.Meta(description=f"the first {MAX_ITEMS}")]


def item(text: str, *, at: str = "", namespace: str = "", name: str = "", gpus: str = "") -> Item:
    """Return an item with its texts bounded and printable."""
    return Item(bounded(text), at, bounded(namespace, MAX_NAME), bounded(name, MAX_NAME), gpus)


def bounded(text: str, longest: int = MAX_TEXT) -> str:
    """Return a text on one line, without control characters, cut to a length."""
    return shortened(printable(" ".join(text[: 4 * longest].split())), longest)


# Secrets from a mounted folder: read for each message, so that a rotated Secret is used at once; never shown.
#
# Policy gives names of files in this folder, and no path: who may edit the policy must not be able to send another
# file, such as the ServiceAccount's token, to an address of their choice.


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


# One HTTP request to a target: verified TLS, no redirects, no proxy, bounded in time; no body of a response is read.
#
# No text has the address, a header or what the receiver answers: each may contain a secret.


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


# Messages in the formats of receivers: plain JSON, Slack, Alertmanager. Pure.
#
# Nothing of a tenant reaches a URL or a header, and no text becomes markup: Slack reads `<!channel>` and links in angle
# brackets, and Mattermost reads `@channel`.


MAX_SLACK_CHARACTERS: Final = 3500
"""Slack cuts longer texts of a webhook at 40,000, and Mattermost refuses those over 4,000 by default."""

_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"})
_MARKS: Final = {Severity.INFO: "", Severity.WARNING: "Warning: ", Severity.CRITICAL: "Critical: "}
_PHASES: Final = {Phase.HAPPENED: "", Phase.BEGAN: "", Phase.LASTS: "Still: ", Phase.ENDED: "Over: "}


def render(message: Message, template: NotifyTemplate) -> bytes:
    """Return the body of the request, as JSON."""
    match template:
        case NotifyTemplate.JSON:
            return msgspec.json.encode(message)
        case NotifyTemplate.SLACK:
            return msgspec.json.encode(_slack(message))
        case NotifyTemplate.ALERTMANAGER:
            return msgspec.json.encode([_alert(message)])
        case _ as never:
            assert_never(never)


def _slack(message: Message) -> dict[str, Any]:
    where = f" (cluster {message.cluster})" if message.cluster else ""
    is_over = message.phase is Phase.ENDED
    mark = _PHASES[message.phase] or _MARKS[message.severity]
    lines = [f"{mark}{message.summary}{where}".translate(_ESCAPED)]
    room = MAX_SLACK_CHARACTERS - len(lines[0])
    for each in () if is_over else message.items:
        line = f"• {_line(each)}".translate(_ESCAPED)
        if (room := room - len(line) - 1) < 0:
            break
        lines.append(line)
    total = max(message.count, len(message.items))
    if not is_over and message.items and (more := total - len(lines) + 1):
        lines.append(f"• and {more:,} more")
    # without these two Slack links what looks like a host, such as the pod evil.example.com, and shows its preview
    return {
        "text": "\n".join(lines),
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _line(item: Item) -> str:
    pod = f"{item.namespace}/{item.name}" if item.name else ""
    return ": ".join(filter(None, (item.at, pod, item.text)))


def _alert(message: Message) -> dict[str, Any]:
    """Return an alert of Alertmanager's API v2; it is over at `endsAt` unless it is sent again."""
    kind = message.subject.kind
    labels = {
        "alertname": f"Fairgate{kind.capitalize()}",
        "severity": message.severity,
        "subject": message.subject.name,
        "cluster": message.cluster,
    }
    annotations = {"summary": message.summary, "description": "\n".join(map(_line, message.items))}
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": message.since,
        "endsAt": message.until,
    }
