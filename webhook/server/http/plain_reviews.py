"""Reviews read without a framework.

Reads the head of a plain POST, as API servers send reviews. Pure.

Plain is: HTTP/1.1, a short head of headers that mean nothing for the framing, each at most once, and a small JSON body
of a declared length. Anything else is for aiohttp, which reads all of HTTP, has the limits and makes the errors. What
is accepted here must be a subset of what aiohttp accepts, with the same meaning: httptools parses the head, and the
head is plain only if its lines, taken as they are written, say the same.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable
from functools import lru_cache
from time import monotonic
from typing import Final, NamedTuple, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from webhook.http.connections import Connection, Connections
from webhook.server.http.handlers import SMALL_BYTES
from webhook.server.http.replies import Reply, RequestTarget, parse_target

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


# Plain reviews that arrive together: they are decided one after the other, and then their responses are written.
#
# Between two system calls a processor decides slower, since the kernel's code replaces the server's in its caches and
# branch predictors: here a decision takes a quarter to a third less time beside others than between writes to sockets
# (docs/adr/0025-plain-reviews.md).


MAX_REVIEWS: Final = 32
"""Decisions without a write, and responses that wait for one. More save nothing that shows, and let callers wait."""

MAX_SECONDS: Final = 0.002
"""After this long no further decision begins before the finished responses are written and the event loop has done its
other work. So a finished response waits for one review that takes long, never for two."""


class Sender(Protocol):
    """Who sent a request: the connection that it came by."""

    transport: asyncio.Transport | None
    remote: str
    """The address of the client."""
    arrived: float
    """When the first byte of the request arrived, in the event loop's time."""

    def is_gone(self) -> bool:
        """Return whether the client closed the connection."""
        ...

    def respond(self, reply: Reply) -> None:
        """Write the response of its review."""
        ...


class PlainReviews(Protocol):
    """Answers plain reviews."""

    @property
    def is_draining(self) -> bool:
        """Whether each response closes its connection."""
        ...

    def answers(self, path: str) -> bool:
        """Return whether this is the path of a review."""
        ...

    def answer(self, head: PlainHead, body: bytes, caller: Sender) -> Reply | Awaitable[Reply]:
        """Return the response to a review whatever happens, or a wait for it where it takes a charge."""
        ...


class ReviewBatch:
    """The reviews that wait for their decisions, and the responses that wait to be written."""

    def __init__(self, reviews: PlainReviews, loop: asyncio.AbstractEventLoop) -> None:
        self._reviews = reviews
        self._loop = loop
        self._arrived: deque[tuple[Sender, PlainHead, bytes]] = deque()
        self._replies: deque[tuple[Sender, Reply]] = deque()
        self._oldest = 0.0  # when the first of the responses was put in
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, caller: Sender, head: PlainHead, body: bytes) -> None:
        """Have a review decided in this turn of the event loop."""
        if not self._arrived:
            self._loop.call_soon(self._decide)
        self._arrived.append((caller, head, body))

    def _decide(self) -> None:
        end, left = monotonic() + MAX_SECONDS, MAX_REVIEWS
        try:
            while self._arrived and left and monotonic() < end:
                left -= 1
                caller, head, body = self._arrived.popleft()
                answer = self._reviews.answer(head, body, caller)
                if isinstance(answer, Reply):
                    self._replies.append((caller, answer))
                else:
                    task = self._loop.create_task(self._respond_later(caller, answer))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        finally:
            if self._arrived:
                self._loop.call_soon(self._decide)
            self._write()

    async def _respond_later(self, caller: Sender, answer: Awaitable[Reply]) -> None:
        reply = await answer
        if not self._replies:
            self._oldest = monotonic()
            self._loop.call_soon(self._write)
        self._replies.append((caller, reply))
        if len(self._replies) >= MAX_REVIEWS or monotonic() > self._oldest + MAX_SECONDS:
            self._write()

    def _write(self) -> None:
        try:
            while self._replies:
                caller, reply = self._replies.popleft()
                caller.respond(reply)
        finally:
            if self._replies:
                self._loop.call_soon(self._write)


# A connection whose plain reviews are answered here, and all else by aiohttp.
#
# A plain review is one that `plain_request` reads; aiohttp would take more time for it than the decision takes. Such a
# request is answered only while the connection is free, and what comes before its answer is kept until then. So
# responses keep the order of their requests.


HOLD_SECONDS: Final = 0.25
"""How long to wait for the rest of a plain review; what is there by then goes to aiohttp, with its own timeout."""

MOST_HELD: Final = 128 * 1024
"""Bytes that are kept while a review is answered, before no more are read: two plain reviews."""


class ReviewConnection(Connection):
    """One connection. It is the caller of its plain reviews."""

    __slots__ = ("_batch", "_held", "_hold_timer", "_is_answering", "_needed_bytes", "_reviews", "arrived")

    def __init__(self, room: Connections, remote: str, *, reviews: PlainReviews, batch: ReviewBatch) -> None:
        super().__init__(room, remote)
        self.arrived = 0.0
        self._reviews = reviews
        self._batch = batch
        self._held = bytearray()  # a part of a plain review, or what came while one is answered
        self._needed_bytes = 0  # of the plain review that is held in part
        self._hold_timer: asyncio.TimerHandle | None = None
        self._is_answering = False  # a plain review has no response yet

    def connection_lost(self, exc: BaseException | None) -> None:
        """Keep nothing for a client that left."""
        super().connection_lost(exc)
        self._stop_holding()

    def is_gone(self) -> bool:
        """Return whether the client closed the connection."""
        return self.transport is None or self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Answer a plain review that is complete; hold a part of one for a moment; give all else to aiohttp."""
        if self._is_answering:
            self._held += data
            if len(self._held) > MOST_HELD and self.transport is not None:
                self.transport.pause_reading()
            return
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return
            data = bytes(self._held)
            self._stop_holding()
        else:
            self.arrived = self.room.now()
        head = plain_head(data) if self.is_free else None
        if head is None or len(data) > head.ends or not self._reviews.answers(head.target.path):
            super().data_received(data)
        elif len(data) < head.ends:
            self._held += data
            self._needed_bytes = head.ends
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._feed_held)
        else:
            self.unanswered = 1
            self._is_answering = True
            self.note_asked()
            self._batch.add(self, head, data[head.body_starts :])

    def respond(self, reply: Reply) -> None:
        """Write the response to the plain review, and go on with what came meanwhile."""
        closes = self._reviews.is_draining
        transport = self.transport
        try:
            if transport is not None and not transport.is_closing():
                transport.write(reply.encode(closes=closes))
                if closes:
                    self.close()
        finally:
            self._is_answering = False
            self.answered()
        if self._held and not closes and transport is not None:
            transport.resume_reading()
            self._feed_held()

    def _feed_held(self) -> None:
        """Give to aiohttp what is held."""
        data = bytes(self._held)
        self._stop_holding()
        super().data_received(data)

    def _stop_holding(self) -> None:
        self._held.clear()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
