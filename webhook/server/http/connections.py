"""Connections: plain reviews are answered here, all else is aiohttp's; and limits on connections.

A plain review is one that `plain_request` reads; aiohttp would take more time for it than the decision takes. Such a
request is answered only while aiohttp has none of its connection, and aiohttp gets none meanwhile, so responses keep
the order of their requests.

The limits: a request header must be complete within seconds, and one address has a maximum number of connections.
aiohttp has a timeout for idle connections only; a client that sends a header byte by byte is never idle.
"""

import asyncio
import logging
from collections import Counter
from typing import Any, Final

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from webhook.server.http.plain_request import plain_head
from webhook.server.http.reply import Reply
from webhook.server.http.review_batch import PlainReviews, ReviewBatch
from webhook.server.settings import HEADER_SECONDS, KEEPALIVE_SECONDS, MAX_CONNECTIONS

HOLD_SECONDS: Final = 0.25
"""How long to wait for the rest of a plain review; what is there by then goes to aiohttp, with its own timeout."""

_log: Final = logging.getLogger("webhook.server.http")


class Connection(RequestHandler):
    """One connection. The overridden methods cost a request of aiohttp's less than a microsecond."""

    __slots__ = (
        "_body",
        "_header_timer",
        "_held",
        "_hold_timer",
        "_is_answering",
        "_needed_bytes",
        "_server",
        "arrived",
        "remote",
    )

    def __init__(self, server: "Connections", *, loop: asyncio.AbstractEventLoop, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(server, loop=loop, **kwargs)
        self._server = server
        self.remote = ""
        self.arrived = 0.0
        self._body: StreamReader | None = None  # of the last request of aiohttp's whose header is complete
        self._header_timer: asyncio.TimerHandle | None = None
        self._held = bytearray()  # a part of a plain review, or what came while one is answered
        self._needed_bytes = 0  # of the plain review that is held in part
        self._hold_timer: asyncio.TimerHandle | None = None
        self._is_answering = False  # a plain review has no response yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it if its address has too many."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.remote = str(peer[0]) if peer else ""
        if not self._server.admit(self.remote):
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection."""
        super().connection_lost(exc)
        self._stop_timer()
        self._stop_holding()
        self._server.leave(self.remote)

    def is_gone(self) -> bool:
        """Return whether the client closed the connection."""
        return self.transport is None or self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Answer a plain review that is complete; hold a part of one for a moment; give all else to aiohttp."""
        if self._is_answering:
            self._held += data
            self._pause_reading_for_buffer()
            return
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return
            data = bytes(self._held)
            self._stop_holding()
        else:
            self.arrived = self._loop.time()
        head = plain_head(data) if self._is_idle() else None
        if head is None or len(data) > head.ends or not self._server.reviews.answers(head.target.path):
            self._feed(data)
        elif len(data) < head.ends:
            self._held += data
            self._needed_bytes = head.ends
            self._hold_timer = self._loop.call_later(HOLD_SECONDS, self._feed_held)
        else:
            # What aiohttp does around a request: count it, do not take the connection for idle, let a shutdown wait.
            self._server.requests_count += 1
            self._next_keepalive_close_time = self.arrived + KEEPALIVE_SECONDS
            self._is_answering = self._request_in_progress = True
            self._server.batch.add(self, head, data[head.body_starts :])

    def respond(self, reply: Reply) -> None:
        """Write the response to the plain review, and go on with what came meanwhile."""
        closes = self._closes or self._server.reviews.is_draining
        try:
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(reply.encode(closes=closes))
                if closes:
                    self.transport.close()
        finally:
            self._is_answering = self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)
        if self._held and not closes:
            self._resume_reading_for_buffer()
            self._feed_held()

    def _is_idle(self) -> bool:
        """Return whether aiohttp waits for the first byte of a request, and the client takes what is written."""
        is_waiting = not self._request_count or (self._waiter is not None and not self._waiter.done())
        return (
            is_waiting
            and self._header_timer is None
            and self._has_whole_body()
            and not self._closes
            and not self._paused
        )

    def _has_whole_body(self) -> bool:
        return self._body is None or self._body.is_eof()

    @property
    def _closes(self) -> bool:
        return self._close or self._force_close

    def _feed_held(self) -> None:
        """Give to aiohttp what is held."""
        data = bytes(self._held)
        self._stop_holding()
        self._feed(data)

    def _stop_holding(self) -> None:
        self._held.clear()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _feed(self, data: bytes) -> None:
        """Let aiohttp read the data; start a timer if it is a part of a header."""
        count, is_header = self._request_count, self._has_whole_body()
        super().data_received(data)
        if self._request_count > count:
            self._body = self._messages[-1][1]
            self._stop_timer()
        elif data and is_header and self._header_timer is None:
            self._header_timer = self._loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._header_timer = None
        _log.warning("not HTTP: no complete header within %g s from %s", HEADER_SECONDS, self.remote)
        self.force_close()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Connections(web.Server):
    """Creates connections, and counts them by address. `reviews` answers the plain ones."""

    def __init__(self, *args: Any, reviews: PlainReviews, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(*args, **kwargs)
        self.reviews = reviews
        self.batch = ReviewBatch(reviews, self._loop)
        self._counts: Counter[str] = Counter()
        self._logged: set[str] = set()

    def __call__(self) -> RequestHandler:
        """Return a new connection."""
        return Connection(self, loop=self._loop, **self._kwargs)

    def admit(self, address: str) -> bool:
        """Count a connection and return whether it is within the maximum of its address."""
        self._counts[address] += 1
        is_allowed = self._counts[address] <= MAX_CONNECTIONS
        if not is_allowed and address not in self._logged:
            self._logged.add(address)
            _log.warning("more than %d connections from %s: new ones are closed", MAX_CONNECTIONS, address)
        return is_allowed

    def leave(self, address: str) -> None:
        """Stop counting a connection."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
            self._logged.discard(address)
