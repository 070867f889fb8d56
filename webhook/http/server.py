"""A server within bounds: aiohttp answers, and its connections are `Connections`."""

import asyncio
import ctypes
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.http.acceptor import TLS_SHUTDOWN_SECONDS, Acceptor
from webhook.http.bounds import Bounds
from webhook.http.connection import Connection
from webhook.http.connections import Connections

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
