"""Limits on connections: a request header must be complete within seconds, and one address has a maximum number.

aiohttp has a timeout for idle connections only; a client that sends a header byte by byte is never idle.
"""

import asyncio
import logging
from collections import Counter
from typing import Any, Final

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from webhook.server.settings import HEADER_SECONDS, MAX_CONNECTIONS

_log: Final = logging.getLogger("webhook.server.http")


class Connection(RequestHandler):
    """One connection. The overridden methods cost a request less than a microsecond."""

    __slots__ = ("_address", "_body", "_header_timer", "_server")

    def __init__(self, server: "Connections", *, loop: asyncio.AbstractEventLoop, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(server, loop=loop, **kwargs)
        self._server = server
        self._address = ""
        self._body: StreamReader | None = None  # of the last request whose header is complete
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it if its address has too many."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if not self._server.admit(self._address):
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection."""
        super().connection_lost(exc)
        self._stop_timer()
        self._server.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Read the data; start a timer if it is a part of a header."""
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
        _log.warning("not HTTP: no complete header within %g s from %s", HEADER_SECONDS, self._address)
        self.force_close()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Connections(web.Server):
    """Creates connections, and counts them by address."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(*args, **kwargs)
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
