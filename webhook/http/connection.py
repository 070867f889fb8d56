"""One connection: its bytes go to aiohttp, and it is known what it waits for, and since when.

A connection is `silent` while its client neither waits for an answer nor takes one: nothing is lost for anyone but that
client if such a connection is closed to let another one in.
"""

import asyncio
from typing import TYPE_CHECKING, cast

from webhook.http.bounds import Bounds
from webhook.http.framing import Arriving, Framing

if TYPE_CHECKING:
    from webhook.http.connections import Connections

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
