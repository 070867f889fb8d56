"""Plain reviews that arrive together: they are decided one after the other, and then their responses are written.

Between two system calls a processor decides slower, since the kernel's code replaces the server's in its caches and
branch predictors: here a decision takes a quarter to a third less time beside others than between writes to sockets
(docs/adr/0025-plain-reviews.md).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from time import monotonic
from typing import Final, Protocol

from webhook.server.http.plain_request import PlainHead
from webhook.server.http.reply import Reply

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
