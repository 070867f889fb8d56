"""Connections that cannot be held for nothing: a header must come whole within seconds, and one address has so many.

aiohttp has a time-out for idle connections only; a client that sends a header byte by byte was never idle.
"""

import asyncio
import logging
from collections import Counter
from typing import Any, Final

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from webhook.server.settings import HEADER_SECONDS, MOST_CONNECTIONS

_log: Final = logging.getLogger("webhook.server.http")


class Connection(RequestHandler):
    """One connection. What it overrides costs a request less than a microsecond."""

    __slots__ = ("_address", "_body", "_header_timer", "_server")

    def __init__(self, server: "Connections", *, loop: asyncio.AbstractEventLoop, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(server, loop=loop, **kwargs)
        self._server = server
        self._address = ""
        self._body: StreamReader | None = None  # of the last request whose header came
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or close it where its address has too many."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if not self._server.admit(self._address):
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no longer."""
        super().connection_lost(exc)
        self._stop_timer()
        self._server.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Read what came; a header of which only a part came must be complete soon."""
        count, body = self._request_count, self._body
        is_header = body is None or body.is_eof()
        super().data_received(data)
        if self._request_count > count:
            self._body = self._messages[-1][1]
            self._stop_timer()
        elif data and is_header and self._header_timer is None:
            self._header_timer = self._loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._header_timer = None
        _log.warning("not HTTP: no whole header within %g s from %s", HEADER_SECONDS, self._address)
        self.force_close()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Connections(web.Server):
    """Makes connections, and counts them by address."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(*args, **kwargs)
        self._of: Counter[str] = Counter()
        self._told: set[str] = set()

    def __call__(self) -> RequestHandler:
        """Make a connection."""
        return Connection(self, loop=self._loop, **self._kwargs)

    def admit(self, address: str) -> bool:
        """Count a connection; tells whether its address may have one more."""
        self._of[address] += 1
        may = self._of[address] <= MOST_CONNECTIONS
        if not may and address not in self._told:
            self._told.add(address)
            _log.warning("more than %d connections from %s: new ones are closed", MOST_CONNECTIONS, address)
        return may

    def leave(self, address: str) -> None:
        """Count a connection no longer."""
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]
            self._told.discard(address)
