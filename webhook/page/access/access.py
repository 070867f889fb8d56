"""Who signs in.

Which Host and Origin a request may name: against DNS rebinding, and against other sites' pages. Pure.
"""

import asyncio
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError
from webhook.cluster.reads.installation import CallerIdentity, identity_of, may_list
from webhook.page.views.teams import EVERYTHING, Viewer, person_of

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names of this machine; a page behind `kubectl port-forward` has one of them, with any port."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which the page is served. `port` is the only port of a loopback name, None for any."""

    names: frozenset[str] = frozenset()
    port: int | None = None

    def allows(self, host: str) -> bool:
        """Whether a Host header names the page."""
        name, _, port = _split(host)
        if name in self.names:
            return True
        return name in LOOPBACK and (self.port is None or port == str(self.port))

    def is_own(self, *, origin: str, site: str, host: str) -> bool:
        """Whether a request that asks for work came from a page of this host, by its Origin and Sec-Fetch-Site.

        A browser sends at least one of them with each POST; without both it is no browser, which needs a cookie anyway.
        """
        if site not in ("", "same-origin", "none"):
            return False
        return not origin or urlsplit(origin).netloc.lower() == host.lower()


def _split(host: str) -> tuple[str, str, str]:
    """Split a host and its port; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return (name + bracket).lower(), ":", rest.removeprefix(":")
    name, colon, port = host.partition(":")
    return name.lower(), colon, port


# Room that persons share: so much of one, so much in all, and who has most yields to one who has less. Pure.


Value = TypeVar("Value")


class _Kept(NamedTuple, Generic[Value]):
    person: str
    value: Value


def yields_to(newcomer: str, counts: Mapping[str, int]) -> str | None:
    """Return the person who gives up one of theirs for a newcomer: the one with most; None if it would be no fairer."""
    most = max(counts, key=lambda person: (counts[person], person), default=None)
    return most if most is not None and counts[most] > counts.get(newcomer, 0) + 1 else None


class KeptByPerson(Generic[Value]):
    """Values by a key, each of one person. Of one person the latest used `of_one` are kept, `in_all` of all."""

    def __init__(self, *, in_all: int, of_one: int) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._kept: OrderedDict[str, _Kept[Value]] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Value | None:
        """Return a value, which is the latest used then; None where it is not kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found.value

    def set(self, key: str, person: str, value: Value) -> None:
        """Keep a value; another one goes where there is no room for it."""
        self.pop(key)
        if self._counts[person] >= self._of_one:
            self._drop_oldest_of(person)
        elif len(self._kept) >= self._in_all:
            most = yields_to(person, self._counts) or (person if self._counts[person] else None)
            if most is None:  # no person has more than one
                self.pop(next(iter(self._kept)))
            else:
                self._drop_oldest_of(most)
        self._kept[key] = _Kept(person, value)
        self._counts[person] += 1

    def pop(self, key: str) -> None:
        """Forget a value; one that is not kept changes nothing."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._counts[found.person] -= 1
            if not self._counts[found.person]:
                del self._counts[found.person]

    def _drop_oldest_of(self, person: str) -> None:
        self.pop(next(key for key, each in self._kept.items() if each.person == person))


# Rights by the API server itself: TokenReview says who, SubjectAccessReview what they may list.


MOST_NAMESPACES: Final = 300
"""Namespaces that are asked about for one viewer."""

_AT_ONCE: Final = 10


class ApiRights:
    """Asks the API server."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def identity(self, token: str) -> CallerIdentity | None:
        """Return the user of a token; None where it is not valid. Raises ClusterError."""
        return await identity_of(self._connection, token)

    async def viewer(self, identity: CallerIdentity, namespaces: Iterable[str]) -> Viewer:
        """Return what a user may list: pods and Events, in all namespaces or in which of these, and nodes."""
        all_pods, nodes = await asyncio.gather(self._may(identity, "pods"), self._may(identity, "nodes"))
        asked = sorted(set(namespaces))
        first = asked if all_pods else asked[:MOST_NAMESPACES]
        pods = None if all_pods else await self._among(identity, "pods", first)
        events = None
        if not await self._may(identity, "events"):
            events = await self._among(identity, "events", first[:MOST_NAMESPACES] if pods is None else sorted(pods))
        notes = []
        if pods is not None:
            notes.append("not shown: pods of namespaces in which you may not list pods")
        if len(asked) > len(first):
            notes.append(f"only the first {len(first)} of {len(asked)} namespaces with GPU pods were looked at")
        if not nodes:
            notes.append("of nodes only the names are shown that your pods have, because you may not list nodes")
        if events is not None and (pods is None or not pods <= events):
            notes.append("decisions that only Events report are shown where you may list Events")
        return Viewer(identity.name, pods, tuple(notes), nodes=nodes, events=events)

    async def _among(self, identity: CallerIdentity, resource: str, namespaces: Sequence[str]) -> frozenset[str]:
        """Return the namespaces in which a user may list a kind."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(namespace: str) -> bool:
            async with gate:
                return await self._may(identity, resource, namespace)

        answers = await asyncio.gather(*map(ask, namespaces))
        return frozenset(name for name, is_allowed in zip(namespaces, answers, strict=True) if is_allowed)

    async def _may(self, identity: CallerIdentity, resource: str, namespace: str = "") -> bool:
        return await may_list(self._connection, identity, resource, namespace)


# How many tokens that turn out to be no good are tried, by the address that they come from. Pure.
#
# A proxy that serves the page has one address for everyone, and names its clients in X-Forwarded-For, whose last entry
# is its own. A client that connects directly can write anything there, and so exceed the bound of a client, but not
# that of its address.


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


# Who a request to the page comes from, and what that viewer may see.


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

UNREACHABLE_SECONDS: Final = 15 * 60.0
"""How much longer it is used while the API server cannot be reached: during an outage the last data are to be seen."""

RETRY_SECONDS: Final = 10.0
"""Between two questions to an API server that cannot be reached."""

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

    def sign_out(self, cookie: str) -> None:
        """End a session."""


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

    def sign_out(self, cookie: str) -> None:
        """Forget a cookie."""
        self._cookies.discard(cookie)


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    until: float


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer, used until a time; until `last` where the API server cannot be reached then."""

    viewer: Viewer | None
    until: float
    last: float = 0.0


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

    def sign_out(self, cookie: str) -> None:
        """End a session: its token is forgotten with it."""
        self._sessions.pop(cookie)

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
        try:
            async with self._free:
                identity = await self._rights.identity(token)
            if identity is not None:
                if counted is not None:
                    self._tries.forgive(counted)
                seen = await self._seen_by(identity)
                self._tokens.set(digest, person_of(identity.name), seen)
                return seen.viewer
        except ClusterError as error:
            if isinstance(error, ApiError) and error.is_refusal:
                self._tokens.pop(digest)
                raise
            return self._still(digest, known, error)
        self._tokens.pop(digest)
        client = "" if origin is None else f"{origin.address} {origin.client}"
        self._invalid.set(digest, client, _Known(None, self._clock() + CHECK_SECONDS))
        return None

    def _still(self, digest: str, known: _Known | None, error: ClusterError) -> Viewer:
        """Return the viewer that a token had, while the API server cannot be reached. Raises ClusterError."""
        now = self._clock()
        if known is None or known.viewer is None or now >= known.last:
            raise error
        again = replace(known, until=min(now + RETRY_SECONDS, known.last))
        self._tokens.set(digest, known.viewer.person, again)
        return known.viewer

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
        seen = _Known(await self._rights.viewer(identity, self._namespaces()), until, until + UNREACHABLE_SECONDS)
        self._users.set(key, person, seen)
        return seen


def _key(identity: CallerIdentity) -> str:
    extra = sorted((name, tuple(values)) for name, values in identity.extra.items() if name != _CREDENTIAL)
    return repr((identity.name, identity.uid, sorted(identity.groups), extra))
