"""Listen, accept, drain.

Accepts the connections of one server: each counts as soon as it is accepted, before its TLS handshake.
"""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from errno import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EMFILE, ENFILE, ENOBUFS, ENOMEM
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.http.connections import Bounds, Connection, Connections

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


# How a server's process runs and ends: background tasks beside its main one, and signals that stop it.


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(on_second: Callable[[str], None]) -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM or SIGINT sets; a second signal ends the process at once, after `on_second`."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            on_second(number.name)
            os._exit(128 + number)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def run_beside(tasks: Iterable[Coroutine[Any, Any, None]], main: Coroutine[Any, Any, object]) -> None:
    """Run background tasks until `main` returns; the first exception of any of them ends all, and is raised."""
    serving = asyncio.create_task(main)
    running = {serving, *(asyncio.create_task(task) for task in tasks)}
    try:
        while not serving.done():
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running -= done
            for task in done:
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


# Opens the listening sockets; its errors say why an address cannot be used.


BACKLOG: Final = 128
"""Connections that may wait to be accepted, unless a server expects more."""

_NO_SUCH_FAMILY: Final = frozenset({EADDRNOTAVAIL, EAFNOSUPPORT})
_PORT_TRIES: Final = 16


def open_sockets(host: str, port: int, *, backlog: int = BACKLOG) -> list[socket.socket]:
    """Bind every address of a host (localhost: two; "": all), on the same port, even if the system chooses it.

    Raises OSError, whose `strerror` says why in words.
    """
    tries = _PORT_TRIES if port == 0 else 1
    for left in reversed(range(tries)):
        try:
            return _bind_all(host, port, backlog)
        except OSError as exc:
            # A port chosen for the first address may be taken on the second: choose again.
            if exc.errno != EADDRINUSE or not left:
                raise OSError(exc.errno, _why(exc)) from exc
    raise AssertionError("the last try returns or raises")


def _bind_all(host: str, port: int, backlog: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    unsupported: OSError | None = None
    with ExitStack() as undo:
        for family, kind, protocol, _name, where in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
                undo.callback(sock.close)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((where[0], port, *where[2:]))
                sock.listen(backlog)
            except OSError as exc:
                if exc.errno not in _NO_SUCH_FAMILY:
                    raise
                unsupported = exc  # a machine without IPv6 still has localhost
                continue
            sock.setblocking(False)
            bound.append(sock)
            port = sock.getsockname()[1]
        if unsupported is not None and not bound:
            raise unsupported
        undo.pop_all()
    return bound


def _why(exc: OSError) -> str:
    if exc.errno == EADDRINUSE and not isinstance(exc, socket.gaierror):
        return "another process listens there"
    return exc.strerror or str(exc)


# A server within bounds: aiohttp answers, and its connections are `Connections`.


LINGERING_SECONDS: Final = 1.0
"""How long to keep reading a rejected body, so that its sender receives the response."""

LARGE_BLOCK_BYTES: Final = 512 * 1024
"""Blocks of memory from this size on go back to the system when they are freed.

uvloop reads from TLS into blocks of 256 KiB: with a mapping of its own for each, three system calls a read took 7 % of
a server's processor time.
"""

_MMAP_THRESHOLD: Final = -3
"""`M_MMAP_THRESHOLD` of mallopt(3)."""

_NEVER: Final = 1e9
"""aiohttp closes no idle connection: `Connections` does, and knows of requests that aiohttp never saw."""

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def options() -> dict[str, Any]:
    """Return the options of aiohttp's server that the shell relies on, for `web.Server` and `web.AppRunner`."""
    return {
        "logger": _http_logger(),
        "access_log": None,
        "keepalive_timeout": _NEVER,
        "lingering_time": LINGERING_SECONDS,
        "auto_decompress": False,  # a few compressed bytes can expand to any size
    }


def server_of(handle: Handle) -> web.Server:
    """Return aiohttp's server for a handler."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await finished(request, await handle(request))

    return web.Server(answer, **options())


async def finished(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Write a response to its end, and note that its request has one; a handler returns it after that.

    Without the rest of a request's body there is no next request: the response says that its connection is closed.
    """
    if not request.content.is_eof():
        response.force_close()
    with suppress(ConnectionError):  # aiohttp finds out, too
        await response.prepare(request)
        await response.write_eof()
    connection = None if request.transport is None else request.transport.get_protocol()
    if isinstance(connection, Connection):
        connection.answered()
    return response


@asynccontextmanager
async def listening(
    connections: Connections,
    sockets: Sequence[socket.socket],
    *,
    tls: ssl.SSLContext | None = None,
    finish_seconds: float,
) -> AsyncIterator[None]:
    """Accept connections until the end of the block, then close each after its last answer.

    A request has `finish_seconds` for that.
    """
    _return_large_blocks()
    acceptor = Acceptor(connections, sockets, tls=tls)
    acceptor.start()
    try:
        yield
    finally:
        await asyncio.sleep(0)  # lets requests that were just received start, before idle connections are closed
        acceptor.close()
        # Closing a loop during a TLS shutdown is an error in uvloop, and would change the exit status.
        await connections.close(within_seconds=finish_seconds, gone_seconds=2 * TLS_SHUTDOWN_SECONDS)
        await acceptor.opened()


def connections_of(
    handle: Handle, bounds: Bounds, *, make: Callable[[Connections, str], Connection] = Connection
) -> Connections:
    """Return the connections of a server that has this handler."""
    return Connections(server_of(handle), bounds.within_files(), make=make)


def _return_large_blocks() -> None:
    """Have the C library return the memory of each large request.

    glibc raises its threshold for blocks with a mapping of their own to the largest that was freed, up to 32 MiB, and
    then takes such blocks from the heap, which shrinks only at its end; a fixed threshold is not raised (mallopt(3)).
    Another C library has its own way.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def _http_logger() -> logging.Logger:
    """Return the logger for aiohttp's server: client errors are warnings without a traceback."""
    logger = logging.getLogger("webhook.http")
    if not logger.filters:
        logger.addFilter(_downgrade_client_errors)
    return logger


def _downgrade_client_errors(record: logging.LogRecord) -> bool:
    cause = record.exc_info[1] if record.exc_info else None
    if isinstance(cause, HttpProcessingError):
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        record.msg, record.args = "not HTTP: %s", (cause.message.partition("\n")[0],)
    return True
