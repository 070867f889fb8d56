"""What the clients of one server may hold: connections, time and bytes."""

import resource
from dataclasses import dataclass, replace
from typing import Final

HEAD_SECONDS: Final = 10.0
"""Timeout for a whole head, from its first byte."""

ARRIVAL_SECONDS: Final = 30.0
"""Timeout for a whole request, from its first byte: the longest timeout of a webhook."""

SEND_SECONDS: Final = 30.0
"""How long a client may take none of a response that waits for it."""

HEAD_BYTES: Final = 64 * 1024
"""Bytes of a head. aiohttp takes 8 KiB for each of its lines."""

_OWN_FILES: Final = 192
"""Files that a process keeps for itself: watches, logs, a history, and connections that come at once."""

_FILES: Final = 65_536
"""Files that a process may open, where its hard limit allows as many."""

_FEWEST: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one server.

    `connections` are open in all, `of_address` from one address. `idle_seconds` is how long a connection may be open
    without a request.
    """

    connections: int
    of_address: int
    idle_seconds: float
    head_seconds: float = HEAD_SECONDS
    head_bytes: int = HEAD_BYTES
    arrival_seconds: float = ARRIVAL_SECONDS
    send_seconds: float = SEND_SECONDS

    def within_files(self) -> "Bounds":
        """Return the bounds with as many connections as the process may open; raises its soft limit if it can.

        A server that may open no more files accepts no connection, not even that of a probe.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        if soft == resource.RLIM_INFINITY or soft >= self.connections + _OWN_FILES:
            return self
        return replace(self, connections=max(_FEWEST, soft - _OWN_FILES))
