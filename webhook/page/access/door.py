"""Doors of the page: who a request comes from, and what that viewer may see."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Protocol

from webhook.cluster.reads.caller_rights import Identity
from webhook.page.access.rights import Rights
from webhook.page.views.viewer import EVERYTHING, Viewer

_TOKEN_BYTES: Final = 32
LONGEST_TOKEN: Final = 16_384
"""Characters of a bearer token that are looked at."""

SESSIONS: Final = 1_000
"""Sessions that are kept, the latest used."""

SESSION_SECONDS: Final = 12 * 3600.0
"""How long a session lasts."""

CHECK_SECONDS: Final = 60.0
"""How long an answer of the API server on a token or a right is used."""

SIGN_INS: Final = 20
"""Tokens that are sent to the API server in ten seconds: guesses must not load it."""

_SIGN_IN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request shows of itself: its cookie and its bearer token, "" without one."""

    cookie: str = ""
    bearer: str = ""


class Door(Protocol):
    """Lets viewers in."""

    takes_tokens: bool
    """Whether a viewer signs in with a token of the cluster."""

    async def viewer(self, caller: Caller) -> Viewer | None:
        """Return the viewer of a request; None where it must sign in first."""

    async def enter(self, token: str) -> str:
        """Return the cookie of a new session for a token; "" where the token is not valid."""

    def leave(self, cookie: str) -> None:
        """End a session."""


class LocalDoor:
    """The door of a page on the user's own machine: the URL that was printed opens it once."""

    takes_tokens = False

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._is_used = False
        self._cookies: set[str] = set()

    async def viewer(self, caller: Caller) -> Viewer | None:
        """Return the only viewer."""
        return EVERYTHING if caller.cookie in self._cookies else None

    async def enter(self, token: str) -> str:
        """Return a cookie for the token of the URL, the first time."""
        if self._is_used or not compare_digest(token.encode(), self.token.encode()):
            return ""
        self._is_used = True
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._cookies.add(cookie)
        return cookie

    def leave(self, cookie: str) -> None:
        """End the session."""
        self._cookies.discard(cookie)


class TooManySignInsError(Exception):
    """Tokens come faster than they may be sent to the API server."""


@dataclass(slots=True)
class _Session:
    token: str
    until: float


@dataclass(slots=True)
class _Known:
    viewer: Viewer | None
    until: float


class ClusterDoor:
    """The door of a page in the cluster: a bearer token that the API server accepts, and its rights.

    A token comes with each request, as from an authenticating proxy, or once by the form. `namespaces` are those that
    have something to show. The rights are asked for again after a minute.
    """

    takes_tokens = True

    def __init__(
        self,
        rights: Rights,
        *,
        namespaces: Callable[[], Iterable[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rights = rights
        self._namespaces = namespaces
        self._clock = clock
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Lock] = {}
        self._asked: list[float] = []

    async def viewer(self, caller: Caller) -> Viewer | None:
        """Return the viewer of a bearer token, or of a session."""
        if caller.bearer:
            return await self._viewer_of(caller.bearer)
        session = self._sessions.get(caller.cookie)
        if session is None or session.until <= self._clock():
            self._sessions.pop(caller.cookie, None)
            return None
        self._sessions.move_to_end(caller.cookie)
        return await self._viewer_of(session.token)

    async def enter(self, token: str) -> str:
        """Return the cookie of a new session. Raises TooManySignInsError."""
        token = token.strip()
        if not token or len(token) > LONGEST_TOKEN or await self._viewer_of(token) is None:
            return ""
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[cookie] = _Session(token, self._clock() + SESSION_SECONDS)
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def leave(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(cookie, None)

    async def _viewer_of(self, token: str) -> Viewer | None:
        """Return the viewer of a token, asked for at most once a minute. Raises TooManySignInsError."""
        if len(token) > LONGEST_TOKEN:
            return None
        digest = sha256(token.encode()).digest()
        lock = self._asking.setdefault(digest, asyncio.Lock())
        try:
            async with lock:  # equal tokens that come at once are asked about once
                return await self._asked_once(digest, token)
        finally:
            if not lock.locked():
                self._asking.pop(digest, None)

    async def _asked_once(self, digest: bytes, token: str) -> Viewer | None:
        known = self._known.get(digest)
        if known is not None and known.until > self._clock():
            return known.viewer
        if known is None or known.viewer is None:
            self._count()
        identity = await self._rights.identity(token)
        viewer = None if identity is None else await self._seen_by(identity)
        self._known[digest] = _Known(viewer, self._clock() + CHECK_SECONDS)
        self._known.move_to_end(digest)
        while len(self._known) > SESSIONS:
            self._known.popitem(last=False)
        return viewer

    async def _seen_by(self, identity: Identity) -> Viewer:
        return await self._rights.viewer(identity, self._namespaces())

    def _count(self) -> None:
        now = self._clock()
        self._asked = [each for each in self._asked if each > now - _SIGN_IN_SECONDS]
        if len(self._asked) >= SIGN_INS:
            raise TooManySignInsError("many tokens were tried: try again in ten seconds")
        self._asked.append(now)
