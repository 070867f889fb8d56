"""Writes Events about pods on their topmost owners, the objects that a person created, at a limited rate.

A user who may create pods can cause any number of refusals, under owners of any name. So the queue is bounded for
each namespace and in total, repeats are added up while they wait, and namespaces take turns: none delays another, and
the API server gets a bounded number of requests a second, however often pods are refused.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NoReturn

from webhook.cluster.writes.events import EventWriter
from webhook.cluster.writes.owners import OwnerLookup
from webhook.cluster.writes.rate_limit import Recent, TokenBucket
from webhook.kube.objects.events import Event, EventReason, ObjectRef

NAMESPACES: Final = 1024
WAITING: Final = 32
"""Namespaces in the queue, and different Events of each of them: anything beyond is counted as held back."""

BURST: Final = 20
REFILL_SECONDS: Final = 3.0
"""Events of one namespace in a burst, and the time after which one more is allowed."""

REMEMBERED: Final = 4096
"""Namespaces whose token buckets are kept."""

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
        elif len(waiting) >= WAITING:
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
        return self._buckets.get(namespace, lambda: TokenBucket.full(BURST, REFILL_SECONDS, now=now))
