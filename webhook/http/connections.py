"""One connection, all of them, their bounds.

What the clients of one server may hold: connections, time and bytes.
"""

import asyncio
import logging
import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, cast

from aiohttp import web
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

HEAD_SECONDS: Final = 10.0
"""Timeout for a whole head, from its first byte."""

ARRIVAL_SECONDS: Final = 30.0
"""Timeout for a whole request, from its first byte: the longest timeout of a webhook."""

SEND_SECONDS: Final = 30.0
"""How long a client may take none of a response that waits for it."""

HEAD_BYTES: Final = 64 * 1024
"""Bytes of a head. aiohttp takes 8 KiB for each of its lines."""

_OWN_FILES: Final = 192
"""Files that a process keeps for itself: watches, logs, a history, and connections that come at once."""

_FILES: Final = 65_536
"""Files that a process may open, where its hard limit allows as many."""

_FEWEST: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one server.

    `connections` are open in all, `of_address` from one address. `idle_seconds` is how long a connection may be open
    without a request.
    """

    connections: int
    of_address: int
    idle_seconds: float
    head_seconds: float = HEAD_SECONDS
    head_bytes: int = HEAD_BYTES
    arrival_seconds: float = ARRIVAL_SECONDS
    send_seconds: float = SEND_SECONDS

    def within_files(self) -> "Bounds":
        """Return the bounds with as many connections as the process may open; raises its soft limit if it can.

        A server that may open no more files accepts no connection, not even that of a probe.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        if soft == resource.RLIM_INFINITY or soft >= self.connections + _OWN_FILES:
            return self
        return replace(self, connections=max(_FEWEST, soft - _OWN_FILES))


# Where the requests of a connection begin and end, and whether one is on its way. Pure.
#
# httptools is the parser of Node.js, as is aiohttp's. aiohttp alone decides what a request means; what is read here
# only bounds how long a client may take to send one.


class Arriving(Enum):
    """What part of a request a client is sending."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    NOT_HTTP = auto()
    """What comes is no HTTP, or no longer HTTP/1."""


class Framing:
    """Follows the bytes of one connection. `arriving` is what they end in; `heads` counts those that were complete.

    `ends` counts the requests that were.
    """

    __slots__ = ("_parser", "arriving", "ends", "head_bytes", "heads")

    def __init__(self) -> None:
        self.arriving = Arriving.NOTHING
        self.heads = 0
        self.ends = 0
        self.head_bytes = 0
        """How many bytes have come of a head that is not complete."""
        self._parser: Final = HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Follow some bytes. Whatever comes between two requests is taken for the beginning of a head."""
        if self.arriving is Arriving.NOT_HTTP:
            return
        if self.arriving is Arriving.NOTHING:
            self.arriving, self.head_bytes = Arriving.HEAD, 0
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.arriving = Arriving.NOT_HTTP
        if self.arriving is Arriving.HEAD:
            self.head_bytes += len(data)

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self.arriving, self.head_bytes = Arriving.HEAD, 0

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        self.arriving = Arriving.BODY
        self.heads += 1

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        self.ends += 1
        self.arriving = Arriving.NOTHING


# One connection: its bytes go to aiohttp, and it is known what it waits for, and since when.
#
# A connection is `silent` while its client neither waits for an answer nor takes one: nothing is lost for anyone but
# that client if such a connection is closed to let another one in.


FOREVER = float("inf")


class Connection(asyncio.Protocol):
    """A connection of one client. `unanswered` requests came with a whole head, and have no whole response yet.

    `has_asked` is whether there was any. `since` is when it came to what it does now, in the event loop's time.
    `opening` is the task that makes its transport, which takes as long as a TLS handshake.
    """

    __slots__ = (
        "_blocked",
        "_http",
        "framing",
        "has_asked",
        "is_closing",
        "opening",
        "remote",
        "room",
        "since",
        "transport",
        "unanswered",
    )

    def __init__(self, room: "Connections", remote: str) -> None:
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None
        self.remote = remote
        self.framing = Framing()
        self.unanswered = 0
        self.has_asked = False
        self.is_closing = False
        self.since = room.now()
        self.room = room
        self._http: asyncio.Protocol | None = None
        self._blocked = FOREVER  # since when the client takes nothing of what waits for it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for requests from now on, unless the connection gave way to another one meanwhile."""
        made = cast("asyncio.Transport", transport)
        if self.is_closing:
            made.abort()
            return
        self.transport = made
        self.since = self.room.now()
        self.room.note_progress(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Leave the room to others."""
        self.is_closing = True
        self.room.leave(self)
        self.transport = None
        if self._http is not None:
            self._http.connection_lost(exc)  # type: ignore[arg-type]  # an Exception, or None
            self._http = None

    def data_received(self, data: bytes) -> None:
        """Give what came to aiohttp, and follow where its requests end."""
        if self.is_closing or self.transport is None:
            return
        framing = self.framing
        before, heads, ends = framing.arriving, framing.heads, framing.ends
        framing.feed(data)
        if framing.heads > heads:
            self.unanswered += framing.heads - heads
            self.note_asked()
        is_cut = framing.arriving is Arriving.NOT_HTTP and before is not Arriving.NOT_HTTP
        if before is Arriving.NOTHING or framing.ends > ends or is_cut:
            self.since = self.room.now()
            if not self.has_asked:
                self.room.note_progress(self)
        if framing.arriving is Arriving.HEAD and framing.head_bytes > self.room.bounds.head_bytes:
            self.room.refuse(self, "a head is too long")
            return
        self._aiohttp(self.transport).data_received(data)

    def pause_writing(self) -> None:
        """Note that the client does not take what is written."""
        self._blocked = self.room.now()
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client takes what is written."""
        self._blocked = FOREVER
        if self._http is not None:
            self._http.resume_writing()

    def note_asked(self) -> None:
        """Note that a request came with its whole head."""
        if not self.has_asked:
            self.has_asked = True
            self.room.note_asked(self)

    def answered(self) -> None:
        """Note that a request has its whole response."""
        self.unanswered = max(0, self.unanswered - 1)
        self.since = self.room.now()
        self.room.note_answer()

    def close(self) -> None:
        """Close after what was written is sent."""
        self.is_closing = True
        if self.transport is not None:
            self.transport.close()
        elif self.opening is not None:
            self.opening.cancel()

    def abort(self) -> None:
        """Close at once."""
        self.is_closing = True
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    @property
    def is_blocked(self) -> bool:
        """Whether the client does not take what is written."""
        return self._blocked < FOREVER

    @property
    def is_free(self) -> bool:
        """Whether no request is on its way or unanswered, and the client takes what is written."""
        return (
            not self.unanswered
            and self.framing.arriving is Arriving.NOTHING
            and not self.is_blocked
            and not self.is_closing
        )

    @property
    def is_silent(self) -> bool:
        """Whether no response is due: the client asks for nothing, has not asked in full, or takes no response."""
        return not self.unanswered or self.framing.arriving is not Arriving.NOTHING or self.is_blocked

    def overdue(self, now: float, bounds: Bounds) -> str:
        """Return which bound of time is exceeded; "" where none is."""
        if now > self._blocked + bounds.send_seconds:
            return f"no response was taken within {bounds.send_seconds:g} s"
        match self.framing.arriving:
            case Arriving.HEAD if self.unanswered == 0 and now > self.since + bounds.head_seconds:
                return f"no complete header within {bounds.head_seconds:g} s"
            case Arriving.BODY if self.unanswered <= 1 and now > self.since + bounds.arrival_seconds:
                return f"no complete request within {bounds.arrival_seconds:g} s"
            case Arriving.NOT_HTTP if now > self.since + bounds.arrival_seconds:
                return "it does not speak HTTP/1"
            case Arriving.NOTHING if not self.unanswered and now > self.since + bounds.idle_seconds:
                return IDLE
            case _:
                return ""

    def _aiohttp(self, transport: asyncio.Transport) -> asyncio.Protocol:
        """Return aiohttp's side of the connection, which exists from the first request on that it is for."""
        if self._http is None:
            self._http = self.room.http()
            self._http.connection_made(transport)
            if self.is_blocked:
                self._http.pause_writing()
        return self._http


IDLE = "idle"
"""The bound that well-behaved clients reach, too."""


# All connections of one server: how many there are, and which one makes room for another.
#
# There is room for a number of connections in all and from one address. Where it is used up, a new connection takes the
# place of the one that has been silent for longest; so a probe gets through however many connections are held open. It
# takes no place of an address that holds fewer than its own.


SWEEP_SECONDS: Final = 1.0
"""Between two looks at the bounds of time: by so much a connection may exceed them."""

_log: Final = logging.getLogger("webhook.http")


class Connections:
    """Makes connections and bounds them. Needs a running event loop.

    `server` answers their requests. `requests` counts those that had an answer.
    """

    def __init__(
        self, server: web.Server, bounds: Bounds, *, make: "Callable[[Connections, str], Connection]" = Connection
    ) -> None:
        self.bounds = bounds
        self.requests = 0
        self._server = server
        self._make = make
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._open: dict[Connection, None] = {}
        self._unasked: OrderedDict[Connection, None] = OrderedDict()
        """Those that never asked, the longest silent first: a crowd of new ones must not cost a look at all others."""
        self._counts: Counter[str] = Counter()
        self._noted: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def http(self) -> asyncio.Protocol:
        """Return aiohttp's side of a new connection."""
        return self._server()

    def admit(self, address: str) -> Connection | None:
        """Return a new connection from an address, and close another one for it where that is needed; None: no room."""
        connection = self._make(self, address)
        self._open[connection] = self._unasked[connection] = None
        self._counts[address] += 1
        if self._counts[address] > self.bounds.of_address:
            is_admitted = self._evict_for(connection, f"more than {self.bounds.of_address} connections from {address}")
        elif len(self._open) > self.bounds.connections:
            is_admitted = self._evict_for(connection, f"more than {self.bounds.connections} connections")
        else:
            is_admitted = True
        if self._timer is None:
            self._timer = self._loop.call_later(self._pause, self._sweep_again)
        return connection if is_admitted else None

    def shed(self, why: str) -> None:
        """Close the connection that counts least, if there is one that waits for no response."""
        self._evict(lambda each: each.is_silent, why)

    def leave(self, connection: Connection) -> None:
        """Stop counting a connection; one that is not counted changes nothing."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._unasked.pop(connection, None)
        self._counts[connection.remote] -= 1
        if not self._counts[connection.remote]:
            del self._counts[connection.remote]
        if not self._open:
            self._noted.clear()
        self._changed.set()

    def note_progress(self, connection: Connection) -> None:
        """Note that a connection that never asked is silent from now on."""
        if connection in self._unasked:
            self._unasked.move_to_end(connection)

    def note_asked(self, connection: Connection) -> None:
        """Note the first request of a connection."""
        self._unasked.pop(connection, None)

    def note_answer(self) -> None:
        """Count an answer."""
        self.requests += 1
        self._changed.set()

    def refuse(self, connection: Connection, why: str) -> None:
        """Close a connection that exceeds a bound, and log the first of its address."""
        self._note(f"not HTTP: {why} from {connection.remote}")
        connection.close()

    def sweep(self, now: float) -> None:
        """Close the connections that exceed a bound of time."""
        for connection in list(self._open):
            why = connection.overdue(now, self.bounds)
            if not why:
                continue
            if connection.is_closing or connection.is_blocked:
                connection.abort()  # one that takes nothing takes no farewell
            elif why == IDLE:
                connection.close()
            else:
                self.refuse(connection, why)

    async def close(self, *, within_seconds: float, gone_seconds: float) -> None:
        """Close every connection, each after its last answer if that comes in time, and wait until all are gone.

        A client that does not let its connection end has `gone_seconds` more.
        """
        for connection in list(self._open):
            if not connection.unanswered:
                connection.close()
        if not await self._until(lambda: not any(each.unanswered for each in self._open), within_seconds):
            _log.warning("requests had no answer within %g s of the end", within_seconds)
        self._server.pre_shutdown()
        await self._server.shutdown(SWEEP_SECONDS)
        for connection in list(self._open):
            connection.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not await self._until(lambda: not self._open, gone_seconds):
            for connection in list(self._open):
                connection.abort()

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait for what connections come to; return whether it holds in time."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _evict_for(self, newcomer: Connection, why: str) -> bool:
        """Close the connection that counts least, if its address holds as many as that of the newcomer."""
        own = self._counts[newcomer.remote]
        is_of_address = own > self.bounds.of_address

        def may_go(each: Connection) -> bool:
            is_there = each.remote == newcomer.remote if is_of_address else self._counts[each.remote] >= own
            return is_there and each.is_silent and each is not newcomer

        if not self._evict(may_go, why):
            self.leave(newcomer)
            return False
        return True

    def _evict(self, may_go: Callable[[Connection], bool], why: str) -> bool:
        """Close the longest silent of those that may go, first of those that never asked; return whether one did."""
        last = next(filter(may_go, self._unasked), None)
        if last is None:
            last = min(filter(may_go, self._open), key=lambda each: each.since, default=None)
        self._note(f"{why}: {'new ones are closed' if last is None else 'the longest silent is closed'}")
        if last is None:
            return False
        self.leave(last)
        last.abort()
        return True

    @property
    def _pause(self) -> float:
        return min(SWEEP_SECONDS, self.bounds.head_seconds / 4, self.bounds.idle_seconds / 4)

    def _sweep_again(self) -> None:
        self.sweep(self.now())
        self._timer = self._loop.call_later(self._pause, self._sweep_again) if self._open else None

    def _note(self, text: str) -> None:
        """Log a text once, until no connection is open."""
        if text not in self._noted and len(self._noted) < self.bounds.connections:
            self._noted.add(text)
            _log.warning(text)
