"""Events on pods and owners: equal ones joined, at a bounded rate.

Finds the topmost owner of an object: from a pod's controller up to the object that a person created.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Generic, NoReturn, TypeVar

from webhook.cluster.api.client import MERGE_PATCH, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import read
from webhook.cluster.watch.event_stream import DEFAULT_PACE, Pace
from webhook.kube.kinds.table import path_of
from webhook.kube.objects.events import Event, EventReason, Identity, ObjectRef, count_of, new_event, repeat_patch
from webhook.kube.objects.objects import ACCEPT, owner_in

STEPS: Final = 5
"""Most owners followed upward: a Knative Service is four steps above the ReplicaSet of its pods."""

REMEMBERED: Final = 4096
"""Owners in the cache: an object's controller never changes while it has one."""

READ_SECONDS: Final = 5.0
"""Timeout of one read: the Event is useful without the topmost owner, too."""

_FINAL: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Statuses that a retry would not change: forbidden, no such object or API."""

_log: Final = logging.getLogger("webhook.cluster.writes.events")


class OwnerLookup:
    """Reads owners and caches them. `reads` counts requests."""

    def __init__(self, connection: ApiConnection) -> None:
        self.reads = 0
        self._connection = connection
        self._known: OrderedDict[ObjectRef, ObjectRef | None] = OrderedDict()

    async def top(self, ref: ObjectRef) -> ObjectRef:
        """Return the topmost owner of an object; itself if it has none, or if that cannot be read."""
        for _ in range(STEPS):
            owner = await self._owner(ref)
            if owner is None:
                return ref
            ref = owner
        return ref

    async def _owner(self, ref: ObjectRef) -> ObjectRef | None:
        if ref in self._known:
            self._known.move_to_end(ref)
            return self._known[ref]
        path = path_of(ref)
        if path is None:
            return None
        self.reads += 1
        try:
            body = await self._connection.send(
                "GET", path, action=f"get {path.split('/')[-2]}", accept=ACCEPT, seconds=READ_SECONDS
            )
            found = owner_in(body, ref)
        except ValueError:
            found = None
        except ClusterError as error:
            _log.debug("owner of %s %s/%s not found: %s", ref.kind, ref.namespace, ref.name, error)
            if not (isinstance(error, ApiError) and error.status in _FINAL):
                return None  # not cached: the next read may succeed
            found = None
        self._known[ref] = found
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


# Token buckets, and a cache that keeps those used last. Pure: times are seconds of any monotonic clock.


K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class TokenBucket:
    """Allows `burst` actions at once, and one more after each `refill_seconds`."""

    burst: int
    refill_seconds: float
    tokens: float
    filled_at: float

    @classmethod
    def full(cls, burst: int, refill_seconds: float, *, now: float) -> "TokenBucket":
        """Return a bucket that nothing was taken from."""
        return cls(burst, refill_seconds, burst, now)

    def wait_seconds(self, now: float) -> float:
        """Return the time until an action is allowed, 0 if it is."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) / self.refill_seconds)
        self.filled_at = now
        return max(0.0, 1 - self.tokens) * self.refill_seconds

    def take(self, now: float) -> bool:
        """Count an action if it is allowed, and return whether it is."""
        if self.wait_seconds(now) > 0:
            return False
        self.tokens -= 1
        return True


class Recent(Generic[K, V]):
    """The entries that were used last, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry of a key, or make it; the one whose use is longest ago is dropped to make room."""
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


# Which Events are worth a write: equal ones become one with a count, and writes per object are limited. Pure.
#
# After client-go's EventCorrelator: its token bucket is per source and object, this one per object and reason, so that
# a reason that repeats does not suppress another one.


BURST: Final = 25
"""Writes for one object and reason in a burst; client-go's value …"""

REFILL_SECONDS: Final = 300.0
"""… as is the time after which one more is allowed."""


@dataclass(slots=True)
class EventRecord:
    """How often an event happened, first and last time; `is_written`: the API server has it."""

    event: Event
    first: datetime
    last: datetime
    count: int = 0
    is_written: bool = False


class Correlator:
    """Counts events and limits their writes."""

    def __init__(self) -> None:
        self._records: Recent[Identity, EventRecord] = Recent(REMEMBERED)
        self._buckets: Recent[tuple[ObjectRef, EventReason], TokenBucket] = Recent(REMEMBERED)

    def count(self, event: Event, *, now: float, wall: datetime, times: int = 1) -> EventRecord | None:
        """Count an event that happened `times` times; None if its object had too many writes for this reason.

        A repeat that is held back is in the count of the next one that is not. `now` is monotonic, `wall` is shown.
        """
        record = self._records.get(event.identity, lambda: EventRecord(event, wall, wall))
        record.event = event
        record.count += times
        record.last = wall
        bucket = self._buckets.get(
            (event.about, event.reason), lambda: TokenBucket.full(BURST, REFILL_SECONDS, now=now)
        )
        return record if bucket.take(now) else None


# Writes Events in the background: callers never wait for it, and its failures do not propagate.


WAITING: Final = 1000
"""Events that may wait to be written; a write takes some 3 ms, so more wait only while the API server is down."""

TRIES: Final = 5
"""Attempts per event, with backoffs of about 0.5, 1, 2 and 4 s: a later Event would be of no use."""


class EventWriter:
    """Writes Events to the API. Start `run` as a task.

    `written` counts writes, `held_back` events over the limit of their object, `dropped` those that were lost: the
    queue was full, or the API server rejected them.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        component: str,
        instance: str,
        pace: Pace = DEFAULT_PACE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.written = 0
        self.held_back = 0
        self.dropped = 0
        self._connection = connection
        self._component = component
        self._instance = instance
        self._pace = pace
        self._clock = clock
        self._correlator = Correlator()
        self._waiting: dict[Identity, EventRecord] = {}
        self._has_work = asyncio.Event()

    def counts(self) -> dict[str, int]:
        """Return these counts by name, as metrics show them."""
        return {"written": self.written, "held_back": self.held_back, "dropped": self.dropped}

    def record(self, event: Event, *, times: int = 1) -> None:
        """Queue an event to be written, or counted if it is a repeat; never blocks and never raises."""
        now, wall, identity = asyncio.get_running_loop().time(), self._clock(), event.identity
        record = self._correlator.count(event, now=now, wall=wall, times=times)
        if record is None:
            self.held_back += 1
        elif len(self._waiting) >= WAITING and identity not in self._waiting:
            self.dropped += 1
        else:
            self._waiting[identity] = record
            self._has_work.set()

    async def run(self) -> NoReturn:
        """Write queued events until cancelled."""
        while True:
            await self._has_work.wait()
            record = self._waiting.pop(next(iter(self._waiting)))
            if not self._waiting:
                self._has_work.clear()
            await self._deliver(record)

    async def _deliver(self, record: EventRecord) -> None:
        for failures in range(1, TRIES + 1):
            try:
                await self._write(record)
            except ClusterError as error:
                if failures == TRIES or not _is_transient(error):
                    self.dropped += 1
                    _log.warning("event %s on %s dropped: %s", record.event.reason, record.event.about.name, error)
                    return
                await asyncio.sleep(self._pace.backoff(failures))
            else:
                self.written += 1
                return

    async def _write(self, record: EventRecord) -> None:
        event = record.event
        path = f"/api/v1/namespaces/{event.namespace}/events"
        if record.is_written:
            try:
                await self._connection.send(
                    "PATCH",
                    f"{path}/{event.name}",
                    repeat_patch(event, count=record.count, last=record.last),
                    action="patch events",
                    content_type=MERGE_PATCH,
                )
            except ApiError as error:
                if not error.is_missing:
                    raise
                record.is_written = False  # Events expire after an hour
            else:
                return
        body = new_event(
            event,
            count=record.count,
            first=record.first,
            last=record.last,
            component=self._component,
            instance=self._instance,
        )
        try:
            await self._connection.send("POST", path, body, action="create events")
        except ApiError as error:
            if not error.is_conflict:
                raise
            if event.series:  # another replica wrote it before: its count is continued
                await self._continue(record, f"{path}/{event.name}")
        record.is_written = True

    async def _continue(self, record: EventRecord, path: str) -> None:
        """Add to the Event of a series that another replica, or this one before a restart, created."""
        count = await read(self._connection, path, count_of, action="get events")
        if count is None:
            return
        record.count += count
        patch = repeat_patch(record.event, count=record.count, last=record.last)
        await self._connection.send("PATCH", path, patch, action="patch events", content_type=MERGE_PATCH)


def _is_transient(error: ClusterError) -> bool:
    """Return whether a retry may succeed: no response, 429, or a server error."""
    return not isinstance(error, ApiError) or (
        error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


# Writes Events about pods on their topmost owners, the objects that a person created, at a limited rate.
#
# A user who may create pods can cause any number of refusals, under owners of any name. So the queue is bounded for
# each namespace and in total, repeats are added up while they wait, and namespaces take turns: none delays another, and
# the API server gets a bounded number of requests a second, however often pods are refused.


NAMESPACES: Final = 1024
OWNER_WAITING: Final = 32
"""Namespaces in the queue, and different Events of each of them: anything beyond is counted as held back."""

OWNER_BURST: Final = 20
OWNER_REFILL_SECONDS: Final = 3.0
"""Events of one namespace in a burst, and the time after which one more is allowed."""


REST_SECONDS: Final = 0.05
"""Delay after each: 20 a second, each with one write and at most five reads, which are cached."""


@dataclass(frozen=True, slots=True)
class OwnerEvent:
    """An Event about a pod, for its owner. Those of one `series` become one Event."""

    owner: ObjectRef
    reason: EventReason
    message: str
    series: str


@dataclass(slots=True)
class _Waiting:
    notice: OwnerEvent
    times: int


_Key = tuple[ObjectRef, EventReason, str]


class OwnerEventQueue:
    """A queue of Events for owners. Start `run` as a task."""

    def __init__(self, owners: OwnerLookup, writer: EventWriter) -> None:
        self._owners = owners
        self._writer = writer
        self._waiting: OrderedDict[str, OrderedDict[_Key, _Waiting]] = OrderedDict()
        self._buckets: Recent[str, TokenBucket] = Recent(REMEMBERED)
        self._has_work = asyncio.Event()

    def take(self, notice: OwnerEvent) -> None:
        """Queue an Event for an owner; never blocks and never raises."""
        namespace = notice.owner.namespace
        waiting = self._waiting.get(namespace)
        if waiting is None:
            if len(self._waiting) >= NAMESPACES:
                self._writer.held_back += 1
                return
            waiting = self._waiting[namespace] = OrderedDict()
        key = (notice.owner, notice.reason, notice.series)
        found = waiting.get(key)
        if found is not None:
            found.notice = notice
            found.times += 1
        elif len(waiting) >= OWNER_WAITING:
            self._writer.held_back += 1
        else:
            waiting[key] = _Waiting(notice, 1)
            self._has_work.set()

    async def run(self) -> NoReturn:
        """Write queued Events until cancelled."""
        while True:
            await self._has_work.wait()
            found = self._next()
            if found is None:
                self._has_work.clear()
                await self._until_next()
                continue
            await self._write(found)
            await asyncio.sleep(REST_SECONDS)

    async def _write(self, found: _Waiting) -> None:
        notice = found.notice
        top = await self._owners.top(notice.owner)
        related = None if top == notice.owner else notice.owner
        self._writer.record(Event(top, notice.reason, notice.message, notice.series, related), times=found.times)

    def _next(self) -> _Waiting | None:
        """Remove and return the next Event that is due, namespaces in turn; None if none is due."""
        now = asyncio.get_running_loop().time()
        for namespace in list(self._waiting):
            waiting = self._waiting[namespace]
            if not self._bucket(namespace, now).take(now):
                continue
            _, found = waiting.popitem(last=False)
            if waiting:
                self._waiting.move_to_end(namespace)
            else:
                del self._waiting[namespace]
            return found
        return None

    async def _until_next(self) -> None:
        """Wait until an Event is queued, or a namespace has a token again."""
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        seconds = min(self._bucket(namespace, now).wait_seconds(now) for namespace in self._waiting)
        try:
            async with asyncio.timeout(max(REST_SECONDS, seconds)):
                await self._has_work.wait()
        except TimeoutError:
            self._has_work.set()

    def _bucket(self, namespace: str, now: float) -> TokenBucket:
        return self._buckets.get(namespace, lambda: TokenBucket.full(OWNER_BURST, OWNER_REFILL_SECONDS, now=now))
