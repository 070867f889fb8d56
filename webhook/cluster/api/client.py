"""The API: connection, credentials, errors, wire.

Errors of the API client; their texts say what an operator can check.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import aiohttp
import msgspec

from webhook import __version__
from webhook.files import InputError


class ClusterError(InputError):
    """The cluster could not be reached, or its response was unusable: the text says what to check."""


class ApiError(ClusterError):
    """The API server responded with an error status.

    `retry_after_seconds` is the response's Retry-After, 0 if it has none.
    """

    def __init__(self, text: str, *, status: int, retry_after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_forbidden(self) -> bool:
        """Whether RBAC forbids it: a retry would fail, too."""
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def is_refusal(self) -> bool:
        """Whether it is an answer to the request, which a retry will get, too: no overload and no failure inside."""
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR and self.status != HTTPStatus.TOO_MANY_REQUESTS

    @property
    def is_gone(self) -> bool:
        """Whether the resourceVersion or continue token is too old: list again."""
        return self.status == HTTPStatus.GONE

    @property
    def is_invalid(self) -> bool:
        """Whether the server rejects the request as malformed: an option that it does not know."""
        return self.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}

    @property
    def is_missing(self) -> bool:
        """Whether the server has no such API or object."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_conflict(self) -> bool:
        """Whether a precondition failed: another resourceVersion or UID than requested, or the name is taken."""
        return self.status == HTTPStatus.CONFLICT


class LostTrackError(ClusterError):
    """The watch cannot continue from its resourceVersion because bytes or events are lost: list again."""


class RestoredError(ClusterError):
    """An object or a list has an earlier resourceVersion than was seen: etcd was restored from a backup.

    What was seen since then did not happen for the cluster, so nothing that this process knows is certain.
    """

    def __init__(self, what: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{what} at resourceVersion {found}, and {known} was seen before: etcd was restored from a backup"
        )


# Decoding of list and watch responses: pages whose objects stay undecoded until their turn, events, lines.


T = TypeVar("T")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list: its version, and the token of the next page ("" on the last)."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True, rename="camel"):
    """One page of a list. Some APIs write null for an empty list. Its version is that of its items, which omit it."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None
    api_version: str = ""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a watch; the object is decoded with it, because a second pass would double the cost."""

    type: str
    object: T


class AnyMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of any object, with the annotations that mark a bookmark."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class AnyObject(msgspec.Struct, frozen=True):
    """Any object: enough for a bookmark's version, or to name an object that does not decode as its own type."""

    metadata: AnyMeta = AnyMeta()

    @property
    def key(self) -> str:
        """The object's namespace/name, or name if it is cluster-scoped."""
        return "/".join(filter(None, (self.metadata.namespace, self.metadata.name)))

    @property
    def ends_list(self) -> bool:
        """Whether this is the bookmark after the last object of a streamed list."""
        return (self.metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"


class Status(msgspec.Struct, frozen=True):
    """An error of the API, as an HTTP body or inside an ERROR event."""

    message: str = ""
    code: int = 0


class _Versioned(msgspec.Struct, frozen=True):
    object: AnyObject = AnyObject()


_ANY_OBJECT: Final = msgspec.json.Decoder(AnyObject)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_STATUS: Final = msgspec.json.Decoder(Status)


def any_object(raw: msgspec.Raw | bytes) -> AnyObject:
    """Decode the metadata of an object; empty if it is not an object."""
    try:
        return _ANY_OBJECT.decode(raw)
    except msgspec.DecodeError:
        return AnyObject()


def version_of(line: bytes) -> str:
    """Return the version of an event's object, "" if it has none."""
    try:
        return _VERSIONED.decode(line).object.metadata.resource_version
    except msgspec.DecodeError:
        return ""


def status_of(raw: msgspec.Raw | bytes) -> Status:
    """Decode a Status; an empty one if the body is something else, such as a proxy's page."""
    try:
        return _STATUS.decode(raw)
    except msgspec.DecodeError:
        return Status()


class LineSplitter:
    """Splits a stream into lines. A line may be longer than any read buffer: its pieces are joined once, at its end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next bytes and return the lines that they complete, without newlines and without empty lines."""
        first, *others = chunk.split(b"\n")
        self._pieces.append(first)
        if not others:
            return []
        lines = [b"".join(self._pieces), *others]
        self._pieces = [lines.pop()]
        return [line for line in lines if line]


# One authenticated connection to the API server: returns raw responses, raises every failure as a ClusterError.


if TYPE_CHECKING:
    from webhook.cluster.api.credentials import Credentials

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's token and CA; it renews both in place."""

CONNECT_SECONDS: Final = 10.0
"""A reachable server accepts a connection in milliseconds; one that drops packets must not block the caller."""

SEND_SECONDS: Final = 15.0
"""How long one object's read or write may take: an eviction alone may be retried inside the server for 10 s."""

CLOCK_SECONDS: Final = 5.0
"""By how much clocks may differ before the API server's is used: its Date has whole seconds, and took a while."""

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
"""The media types of what is sent."""

_HEADERS: Final = {
    "Accept": "application/json",
    # The server would gzip every page above 128 KB: CPU on both sides to save bandwidth inside a data center.
    "Accept-Encoding": "identity",
    "User-Agent": f"fairgate/{__version__}",
}


async def connect(kubeconfig: Path | None, *, service_account: Path = SERVICE_ACCOUNT) -> "ApiConnection":
    """Load credentials (None: those of this process's pod) and return a connection that uses them.

    Raises ClusterError for a configuration that cannot work. Sends nothing yet: each request handles an unreachable
    server, so that a webhook that starts before its API server waits instead of failing.
    """
    loaded = await _load_credentials(kubeconfig, service_account)
    return ApiConnection(loaded, kubeconfig=kubeconfig, service_account=service_account)


async def _load_credentials(kubeconfig: Path | None, service_account: Path) -> "Credentials":
    # Imported here because kubernetes_asyncio takes 0.7 s, and an embedded world needs none of it.
    from webhook.cluster.api import credentials  # noqa: PLC0415

    return await credentials.load(kubeconfig, service_account=service_account)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None = None
    content_type: str | None = None
    accept: str | None = None
    header: tuple[str, str] | None = None


class ApiConnection:
    """Sends requests and renews its credentials. Created by `connect`; close it, or use it in `async with`."""

    def __init__(self, loaded: "Credentials", *, kubeconfig: Path | None, service_account: Path) -> None:
        self._credentials = loaded
        self._kubeconfig = kubeconfig
        self._service_account = service_account
        self._renewal = asyncio.Lock()
        self._dated = ""
        self._server_epoch: float | None = None  # the API server's time of day when the monotonic clock was 0
        self._session = aiohttp.ClientSession(headers=_HEADERS, connector=aiohttp.TCPConnector(limit=0))

    async def __aenter__(self) -> "ApiConnection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    @property
    def server_time(self) -> float | None:
        """The API server's time of day, by its last response; None before one with a Date."""
        return None if self._server_epoch is None else self._server_epoch + time.monotonic()

    def unix_time(self) -> float:
        """Return the time of day: the API server's, where this machine's clock differs from it by seconds.

        Times of objects, and those that other processes write, are compared with it.
        """
        own, told = time.time(), self.server_time
        return own if told is None or abs(told - own) < CLOCK_SECONDS else told

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._credentials.server

    @asynccontextmanager
    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, action: str, read_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET a path and yield the unread 200 response; failures while reading it are translated too.

        `action` names the request in errors as verb and resource ("list pods"), as RBAC does; `read_seconds` is the
        longest silence of the server. Raises ApiError for any status but 200, ClusterError for everything else.
        """
        limits = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=read_seconds)
        try:
            async with await self._send(_Request("GET", path, params or {}), limits) as response:
                if response.status != HTTPStatus.OK:
                    raise await _api_error(response, action)
                yield response
        except (aiohttp.ClientError, TimeoutError) as cause:
            raise ClusterError(f"cannot {action}: {self._explain(cause, read_seconds)}") from cause

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        action: str,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        accept: str | None = None,
        seconds: float = SEND_SECONDS,
        header: tuple[str, str] | None = None,
    ) -> bytes:
        """Send one request and return the body of its 2xx response: reads of one object, and every write.

        `action` is as in `get`; a PATCH sets its type by `content_type`, a GET may request a form of the object by
        `accept`; `seconds` bounds the whole request; `header` is one more, for a pod behind the API server. Raises
        ApiError for any other status. A plain ClusterError means that no response came: a write may still have been
        carried out.
        """
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        request = _Request(method, path, params or {}, body, content_type if body is not None else None, accept, header)
        try:
            async with await self._send(request, limits) as response:
                if not response.ok:
                    raise await _api_error(response, action)
                return await response.read()
        except (aiohttp.ClientError, TimeoutError) as cause:
            raise ClusterError(f"cannot {action}: {self._explain(cause, seconds)}") from cause

    async def _send(self, request: _Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Send once; if the server rejects our credentials or we reject its certificate, renew them and send again.

        That covers every rotation (exec plugins, token files, client certificates, CAs) without a schedule.
        """
        used = self._credentials
        try:
            response = await self._send_with(used, request, limits)
        except aiohttp.ClientConnectorCertificateError:
            return await self._send_with(await self._renew(used), request, limits)
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        response.close()
        return await self._send_with(await self._renew(used), request, limits)

    async def _send_with(
        self, used: "Credentials", request: _Request, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = await used.headers()
        if request.content_type is not None:
            headers = (*headers, ("Content-Type", request.content_type))
        if request.accept is not None:
            headers = (*headers, ("Accept", request.accept))
        if request.header is not None:
            headers = (*headers, request.header)
        try:
            response = await self._session.request(
                request.method,
                used.server + request.path,
                params=request.params,
                data=request.body,
                headers=headers,
                timeout=limits,
                ssl=used.tls,
                server_hostname=used.tls_name,
                proxy=used.proxy,
                allow_redirects=False,  # a redirect would send our token to another host
            )
        except RuntimeError as cause:
            # uvloop: "the handler is closed", when the other side closes at this moment (aio-libs/aiohttp#12336).
            raise aiohttp.ClientConnectionError(str(cause)) from cause
        date = response.headers.get("Date", "")
        if date != self._dated:  # a ledger is written many times a second
            self._dated = date
            with suppress(ValueError):
                self._server_epoch = parsedate_to_datetime(date).timestamp() - time.monotonic()
        return response

    async def _renew(self, stale: "Credentials") -> "Credentials":
        """Load credentials again, once for all requests that failed with the same stale ones."""
        async with self._renewal:
            if self._credentials is stale:
                self._credentials = await _load_credentials(self._kubeconfig, self._service_account)
            return self._credentials

    def _explain(self, cause: Exception, read_seconds: float) -> str:
        server = self.server
        match cause:
            case aiohttp.ClientConnectorCertificateError():
                return f"the certificate of {server} is not trusted, check the CA: {cause.certificate_error}"
            case aiohttp.ClientSSLError():
                return f"no TLS with {server}: {_os_reason(cause)}"
            case aiohttp.ConnectionTimeoutError():
                return f"{server} did not accept a connection within {CONNECT_SECONDS:g} s"
            case TimeoutError():
                return f"{server} did not respond for {read_seconds:g} s"
            case aiohttp.ClientConnectorError():
                return f"{server} cannot be reached: {_os_reason(cause)}"
            case _:
                return f"the connection to {server} broke: {str(cause) or type(cause).__name__}"


def _os_reason(cause: aiohttp.ClientConnectorError) -> str:
    # str(cause) would contain the memory address of the SSLContext
    return cause.os_error.strerror or str(cause.os_error) or type(cause.os_error).__name__


async def _api_error(response: aiohttp.ClientResponse, action: str) -> ApiError:
    """Return the error of a response, with the message of its Status if it has one."""
    message = status_of(await response.read()).message
    verb, _, resource = action.partition(" ")
    match response.status:
        case HTTPStatus.UNAUTHORIZED:
            advice = "; the credentials are invalid or expired"
        case HTTPStatus.FORBIDDEN if not _is_of_admission(message):
            advice = f"; RBAC must grant this user the verb {verb} on {resource}"
        case _:
            advice = ""
    return ApiError(
        f"cannot {action}: {response.status} {message or response.reason or 'without a reason'}{advice}",
        status=response.status,
        retry_after_seconds=_seconds(response.headers.get("Retry-After", "")),
    )


def _is_of_admission(message: str) -> bool:
    """Whether a 403 is not RBAC's: a webhook, a quota or a security standard refused the object."""
    return "denied the request" in message or (" is forbidden: " in message and " is forbidden: User " not in message)


def _seconds(retry_after: str) -> float:
    # HTTP allows a date as well; the API server sends only seconds.
    return float(retry_after) if retry_after.isdecimal() else 0.0
