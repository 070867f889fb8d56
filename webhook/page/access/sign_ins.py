"""How many tokens that turn out to be no good are tried, by the address that they come from. Pure.

A proxy that serves the page has one address for everyone, and names its clients in X-Forwarded-For, whose last entry is
its own. A client that connects directly can write anything there, and so exceed the bound of a client, but not that of
its address.
"""

from collections import Counter, deque
from typing import Final, NamedTuple

SECONDS: Final = 10.0

OF_CLIENT: Final = 20
"""Tokens of one client in ten seconds that are not valid, or not known to be: guesses must not load the API server."""

OF_ADDRESS: Final = 200
"""Of one address: a proxy has many clients."""

_LONGEST: Final = 64


class TooManySignInsError(Exception):
    """Tokens come faster than they may be sent to the API server."""


class Origin(NamedTuple):
    """Where a request comes from: the address of the connection, and the client that a proxy names."""

    address: str = ""
    client: str = ""

    @classmethod
    def of(cls, address: str, forwarded: str) -> "Origin":
        """Return the origin by the value of X-Forwarded-For."""
        return cls(address, forwarded.rpartition(",")[2].strip()[:_LONGEST])


NOWHERE: Final = Origin()
"""The origin of a request whose address is not known."""


class Try:
    """A token that was tried; it counts until it turns out to be valid, or ten seconds have passed."""

    __slots__ = ("at", "counts", "keys")

    def __init__(self, keys: tuple[str, ...], at: float) -> None:
        self.keys = keys
        self.at = at
        self.counts = True


class Tries:
    """The tries of the last ten seconds."""

    def __init__(self) -> None:
        self._tries: deque[Try] = deque()
        self._counts: Counter[str] = Counter()

    def begin(self, origin: Origin, *, now: float) -> Try:
        """Count a try from an origin. Raises TooManySignInsError."""
        self._forget(now)
        address, client = f"address {origin.address}", f"client {origin.address} {origin.client}"
        if self._counts[address] >= OF_ADDRESS or self._counts[client] >= OF_CLIENT:
            raise TooManySignInsError("many tokens were tried from your address: try again in ten seconds")
        return self._count((address, client), now)

    def begin_of(self, person: str, *, now: float) -> Try:
        """Count a valid token of a person whose rights must be asked for. Raises TooManySignInsError."""
        self._forget(now)
        key = f"person {person}"
        if self._counts[key] >= OF_CLIENT:
            raise TooManySignInsError("you sent many different tokens: try again in ten seconds")
        return self._count((key,), now)

    def forgive(self, found: Try) -> None:
        """Let a try count no more."""
        if not found.counts:
            return
        found.counts = False
        for key in found.keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def _forget(self, now: float) -> None:
        while self._tries and (not self._tries[0].counts or self._tries[0].at <= now - SECONDS):
            self.forgive(self._tries.popleft())

    def _count(self, keys: tuple[str, ...], now: float) -> Try:
        made = Try(keys, now)
        self._tries.append(made)
        self._counts.update(keys)
        return made
