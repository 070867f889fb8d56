"""Accepts the connections of one server: each counts as soon as it is accepted, before its TLS handshake."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
from functools import partial
from typing import Any, Final

from webhook.http.connection import Connection
from webhook.http.connections import Connections

HANDSHAKE_SECONDS: Final = 10.0
"""Timeout of a TLS handshake."""

TLS_SHUTDOWN_SECONDS: Final = 1.0
"""How long a closing connection waits for its peer's TLS close_notify."""

ACCEPTS: Final = 16
"""Connections of one socket that are accepted in one turn of the event loop: what they replace is closed two turns
later, and is still an open file until then."""

RETRY_SECONDS: Final = 0.01
"""Pause after an accept for which the process has no file: the connection that was closed for it is gone by then."""

_NO_FILE: Final = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM})


class Acceptor:
    """Accepts from the sockets from `start` to `close`, which closes them. Needs a running event loop.

    Each connection has a TLS handshake if `tls` is given, with what that context has loaded by then.
    """

    def __init__(
        self, connections: Connections, sockets: Sequence[socket.socket], *, tls: ssl.SSLContext | None
    ) -> None:
        self._connections = connections
        self._sockets = tuple(sockets)
        self._options: dict[str, Any] = {}
        if tls is not None:
            self._options = {
                "ssl": tls,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS,
            }
        self._loop = asyncio.get_running_loop()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        self._opening: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accept from now on."""
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Accept no more."""
        for retry in self._retries.values():
            retry.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()

    async def opened(self) -> None:
        """Return once no accepted connection waits for its handshake."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno in _NO_FILE:
                    self._retry_later(listener, exc)
                    return
                continue  # what happened to a connection that waited: its client left, or is out of reach
            self._open(sock, str(address[0]) if isinstance(address, tuple) else "")

    def _retry_later(self, listener: socket.socket, exc: OSError) -> None:
        """Close a connection for the one that waits: without a file it stays ready, and accepting it must not spin."""
        self._connections.shed(f"no file for a new connection ({exc.strerror})")
        self._loop.remove_reader(listener)
        self._retries[listener] = self._loop.call_later(
            RETRY_SECONDS, self._loop.add_reader, listener, self._accept, listener
        )

    def _open(self, sock: socket.socket, remote: str) -> None:
        """Start the handshake of a connection, if there is room for it."""
        connection = self._connections.admit(remote)
        if connection is None:
            sock.close()
            return
        sock.setblocking(False)
        opening = self._loop.create_task(self._connect(connection, sock))
        connection.opening = opening
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, connection, sock))

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        with suppress(OSError):  # the client left, takes too long, or speaks no TLS
            await self._loop.connect_accepted_socket(lambda: connection, sock, **self._options)

    def _opened(self, connection: Connection, sock: socket.socket, opening: asyncio.Task[None]) -> None:
        """Let go of a connection that did not come to be.

        Its task may have been canceled before it began, and uvloop reports no loss of a transport that it closes then.
        """
        self._opening.discard(opening)
        connection.opening = None
        if connection.transport is None or opening.cancelled():
            connection.is_closing = True
            self._connections.leave(connection)
            sock.close()
