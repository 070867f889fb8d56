"""A connection whose plain reviews are answered here, and all else by aiohttp.

A plain review is one that `plain_request` reads; aiohttp would take more time for it than the decision takes. Such a
request is answered only while the connection is free, and what comes before its answer is kept until then. So
responses keep the order of their requests.
"""

import asyncio
from typing import Final

from webhook.http.connection import Connection
from webhook.http.connections import Connections
from webhook.server.http.plain_request import plain_head
from webhook.server.http.reply import Reply
from webhook.server.http.review_batch import PlainReviews, ReviewBatch

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
