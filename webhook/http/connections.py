"""All connections of one server: how many there are, and which one makes room for another.

There is room for a number of connections in all and from one address. Where it is used up, a new connection takes the
place of the one that has been silent for longest; so a probe gets through however many connections are held open. It
takes no place of an address that holds fewer than its own.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from aiohttp import web

from webhook.http.bounds import Bounds
from webhook.http.connection import IDLE, Connection

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
