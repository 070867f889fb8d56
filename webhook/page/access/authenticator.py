"""Who a request to the page comes from, and what that viewer may see."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Protocol

from webhook.cluster.reads.caller_rights import CallerIdentity
from webhook.page.access.persons import KeptByPerson
from webhook.page.access.rights import ApiRights
from webhook.page.access.sign_ins import NOWHERE, Origin, Tries
from webhook.page.views.viewer import EVERYTHING, Viewer, person_of

_TOKEN_BYTES: Final = 32
LONGEST_TOKEN: Final = 16_384
"""Characters of a bearer token that are looked at."""

SESSIONS: Final = 1_000
"""Sessions that are kept; where there are more, the person with most gives up the one that was used longest ago."""

SESSIONS_OF_ONE: Final = 10
"""Of one person: a new one ends the one that was used longest ago."""

SESSION_SECONDS: Final = 12 * 3600.0
"""How long a session lasts."""

CHECK_SECONDS: Final = 60.0
"""How long an answer of the API server on a token or a right is used."""

TOKENS_OF_ONE: Final = 20
"""Tokens of one person whose answers are kept."""

AT_ONCE: Final = 10
"""Tokens that the API server is asked about at a time."""

_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
"""What tells apart the tokens of one user: no right depends on it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request shows of itself: its cookie and its bearer token, "" without one, and where it comes from."""

    cookie: str = ""
    bearer: str = ""
    origin: Origin = NOWHERE


class Authenticator(Protocol):
    """Identifies viewers, and keeps their sessions."""

    takes_tokens: bool
    """Whether a viewer signs in with a token of the cluster."""

    async def viewer(self, caller: Caller) -> Viewer | None:
        """Return the viewer of a request; None where it must sign in first."""

    async def sign_in(self, token: str, origin: Origin = NOWHERE) -> str:
        """Return the cookie of a new session for a token; "" where the token is not valid."""


class UrlAuthenticator:
    """For a page on the user's own machine: the URL that was printed opens it once."""

    takes_tokens = False

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._is_used = False
        self._cookies: set[str] = set()

    async def viewer(self, caller: Caller) -> Viewer | None:
        """Return the only viewer."""
        return EVERYTHING if caller.cookie in self._cookies else None

    async def sign_in(self, token: str, origin: Origin = NOWHERE) -> str:  # noqa: ARG002 - it opens once
        """Return a cookie for the token of the URL, the first time."""
        if self._is_used or not compare_digest(token.encode(), self.token.encode()):
            return ""
        self._is_used = True
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._cookies.add(cookie)
        return cookie


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    until: float


@dataclass(frozen=True, slots=True)
class _Known:
    viewer: Viewer | None
    until: float


class TokenAuthenticator:
    """For a page in the cluster: a bearer token that the API server accepts, and its rights.

    A token comes with each request, as from an authenticating proxy, or once by the form. `namespaces` are those that
    have something to show. The rights are asked for again after a minute. What is kept, and what the API server is
    asked, is bounded by person where there is one, and by address where a token is no good.
    """

    takes_tokens = True

    def __init__(
        self,
        rights: ApiRights,
        *,
        namespaces: Callable[[], Iterable[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rights = rights
        self._namespaces = namespaces
        self._clock = clock
        self._sessions: KeptByPerson[_Session] = KeptByPerson(in_all=SESSIONS, of_one=SESSIONS_OF_ONE)
        self._tokens: KeptByPerson[_Known] = KeptByPerson(in_all=SESSIONS, of_one=TOKENS_OF_ONE)
        self._invalid: KeptByPerson[_Known] = KeptByPerson(in_all=SESSIONS, of_one=TOKENS_OF_ONE)  # by address
        self._users: KeptByPerson[_Known] = KeptByPerson(in_all=SESSIONS, of_one=TOKENS_OF_ONE)
        self._asking: dict[str, asyncio.Lock] = {}
        self._tries = Tries()
        self._free = asyncio.Semaphore(AT_ONCE)

    async def viewer(self, caller: Caller) -> Viewer | None:
        """Return the viewer of a bearer token, or of a session. Raises TooManySignInsError, ClusterError."""
        if caller.bearer:
            return await self._viewer_of(caller.bearer, caller.origin)
        session = self._sessions.get(caller.cookie)
        if session is None or session.until <= self._clock():
            self._sessions.pop(caller.cookie)
            return None
        return await self._viewer_of(session.token, None)

    async def sign_in(self, token: str, origin: Origin = NOWHERE) -> str:
        """Return the cookie of a new session. Raises TooManySignInsError, ClusterError."""
        token = token.strip()
        viewer = await self._viewer_of(token, origin) if token else None
        if viewer is None:
            return ""
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions.set(cookie, viewer.person, _Session(token, self._clock() + SESSION_SECONDS))
        return cookie

    async def _viewer_of(self, token: str, origin: Origin | None) -> Viewer | None:
        """Return the viewer of a token, asked for at most once a minute; `origin` is None for that of a session."""
        if len(token) > LONGEST_TOKEN:
            return None
        digest = sha256(token.encode()).hexdigest()
        lock = self._asking.setdefault(digest, asyncio.Lock())
        try:
            async with lock:  # equal tokens that come at once are asked about once
                return await self._asked_once(digest, token, origin)
        finally:
            if not lock.locked():
                self._asking.pop(digest, None)

    async def _asked_once(self, digest: str, token: str, origin: Origin | None) -> Viewer | None:
        known = self._tokens.get(digest) or self._invalid.get(digest)
        if known is not None and known.until > self._clock():
            return known.viewer
        counted = None
        if origin is not None and (known is None or known.viewer is None):
            counted = self._tries.begin(origin, now=self._clock())
        async with self._free:
            identity = await self._rights.identity(token)
        until = self._clock() + CHECK_SECONDS
        if identity is None:
            self._tokens.pop(digest)
            self._invalid.set(
                digest, "" if origin is None else f"{origin.address} {origin.client}", _Known(None, until)
            )
            return None
        if counted is not None:
            self._tries.forgive(counted)
        seen = await self._seen_by(identity)
        self._tokens.set(digest, person_of(identity.name), seen)
        return seen.viewer

    async def _seen_by(self, identity: CallerIdentity) -> _Known:
        """Return what a user may see, asked for at most once a minute whatever tokens the user has."""
        key = _key(identity)
        known = self._users.get(key)
        if known is not None and known.until > self._clock():
            return known
        person = person_of(identity.name)
        if known is None:
            self._tries.begin_of(person, now=self._clock())
        until = self._clock() + CHECK_SECONDS
        seen = _Known(await self._rights.viewer(identity, self._namespaces()), until)
        self._users.set(key, person, seen)
        return seen


def _key(identity: CallerIdentity) -> str:
    extra = sorted((name, tuple(values)) for name, values in identity.extra.items() if name != _CREDENTIAL)
    return repr((identity.name, identity.uid, sorted(identity.groups), extra))
