"""Opens the listening sockets; its errors say why an address cannot be used."""

import socket
from contextlib import ExitStack
from errno import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT
from typing import Final

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
