"""Bytes to events; positions; store.

The objects of one kind that its sink holds, by key; correct for changes in any order, one object at a time.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NoReturn

import msgspec

from webhook.cluster.api.client import ApiConnection, ClusterError, LineSplitter, WatchEvent, version_of
from webhook.cluster.api.requests import list_page
from webhook.kube.watched.kinds import T, WatchedKind

_log: Final = logging.getLogger("webhook.cluster.watch.watch")


class ObjectStore(Generic[T]):
    """Applies objects to the sink of a kind. `rejected` counts those that could not be decoded or were invalid."""

    def __init__(self, kind: WatchedKind[T]) -> None:
        self.rejected = 0
        self._kind = kind
        self._handles: dict[str, str] = {}  # key → handle; "" for an object of which only the name is known

    @property
    def keys(self) -> Iterable[str]:
        """The keys of all objects that are stored, or known by name."""
        return self._handles

    def handle(self, key: str) -> str | None:
        """Return the handle of a key: "" if only the name is known, None if there is no such object."""
        return self._handles.get(key)

    def apply(self, item: T) -> str:
        """Apply the current version of an object and return its key."""
        kind = self._kind
        key, handle = kind.key(item), kind.handle(item)
        before = self._handles.get(key)
        try:
            if before and before != handle:
                self.forget(key)  # deleted and created again, and the deletion was missed
                before = None
            if not kind.apply(item):
                self._remove(key, kind.remove)
                if kind.tracks_names:
                    self._handles[key] = ""
            elif not before:  # else keep the equal handle: a new string would double the memory of a relist
                self._handles[key] = handle
        except ValueError as error:
            self.reject(key, error, item)
        return key

    def delete(self, item: T) -> str:
        """Remove an object that was deleted and return its key."""
        key = self._kind.key(item)
        if self._handles.get(key) in ("", self._kind.handle(item)):
            self.forget(key, is_watched=True)
        return key

    def forget(self, key: str, *, is_watched: bool = False) -> None:
        """Remove the object of a key, if there is one: it was deleted."""
        lose = self._kind.lose
        self._remove(key, self._kind.remove if lose is None else partial(lose, is_watched=is_watched))

    def _remove(self, key: str, remove: Callable[[str], None]) -> None:
        handle = self._handles.pop(key, None)
        if handle:
            remove(handle)

    def reject(self, key: str, error: Exception, found: T | bytes = b"") -> None:
        """Count and log an object that cannot be decoded or applied: its earlier state stays.

        If there is none, its readable part is applied, so that it is not missing from a sum.
        """
        self.rejected += 1
        is_counted = bool(self._handles.get(key)) or (bool(found) and self._apply_partly(key, found))
        effect = "it counts by its earlier or its readable part" if is_counted else "it does not count"
        _log.error("object not understood, %s: %s %s: %s", effect, self._kind.name, key, error)

    def _apply_partly(self, key: str, found: T | bytes) -> bool:
        item = self._kind.salvage(found) if self._kind.salvage is not None else None
        try:
            if item is None or not self._kind.apply(item):
                return False
        except ValueError:
            return False
        self._handles[key] = self._kind.handle(item)
        return True


# Page sizes, timeouts and backoffs of a list-watch, with their production values and reasons.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Sizes in objects, times in seconds."""

    page: int = 50
    """Objects in one page if the server cannot stream a list. A page is split into objects in one go, so it is small:
    100 pods of 6.4 KB block the event loop for up to 3.3 ms."""
    slice_seconds: float = 0.0003
    """Time for which objects are applied before other tasks run. A request needs several turns of the loop, so delays
    add up: slices of 2.6 ms once raised the p99 of decisions from 2 ms to 68 ms. 0.5 ms is harmless; this is less,
    since two kinds may be listed in the same turn."""
    list_timeout: float = 60.0
    """Longest silence while the server builds a page; its own timeout is 60 s."""
    watch_timeout: float = 90.0
    """Longest silence of a watch before it is opened again. Bookmarks come about every 60 s, but the API server sends
    none for the version that the watch began with, and drops one if its buffer is full: one missing bookmark must not
    make a replica unready, so this is between the 60 s and the staleness limit of readiness."""
    watch_min: float = 300.0
    """Shortest lifetime of a watch: the server ends it after a random time, so that watches spread …"""
    watch_max: float = 600.0
    """… over the replicas of the API server again after one was restarted."""
    initial_backoff: float = 0.5
    """Backoff after the first failure; doubled for each further one …"""
    max_backoff: float = 30.0
    """… up to this. A server that recovers is noticed within half a minute."""
    settled: float = 10.0
    """A watch that lasted this long was healthy: the next failure counts as the first one."""
    missing_api_backoff: float = 60.0
    """Between two checks for an optional API that is missing. Below the staleness limit of readiness."""
    clock: Callable[[], float] = time.perf_counter
    """The clock that measures slices."""
    uniform: Callable[[float, float], float] = random.uniform
    """Source of jitter."""

    def backoff(self, failures: int, *, retry_after: float = 0.0) -> float:
        """Return the backoff after `failures` in a row, 0 for none; at least the server's `retry_after`.

        Half of it is random: clients that failed together do not retry together.
        """
        if failures == 0:
            return 0.0
        full = min(self.max_backoff, self.initial_backoff * 2.0 ** min(failures - 1, 32))
        return max(self.uniform(full / 2, full), min(retry_after, self.max_backoff))

    def lifetime(self) -> int:
        """Return a random lifetime for the next watch, in whole seconds."""
        return max(1, round(self.uniform(self.watch_min, self.watch_max)))


DEFAULT_PACE: Final = Pace()
"""The production values."""


# Watches Events of one kind from now on. Earlier ones are not listed: kube-apiserver would read all Events.
#
# Events are not in the API server's watch cache, so a list of some of them reads every Event of the cluster from etcd.
# This lists one Event to get the current resourceVersion, and watches from there. Events written while it is not
# connected are lost; the caller must tolerate that.


PATH: Final = "/api/v1/events"
STREAM_SECONDS: Final = 240
"""How long one watch lasts: shorter than etcd keeps old versions."""

_READ_SECONDS: Final = STREAM_SECONDS + 30.0
_CHUNK_BYTES: Final = 65_536


class EventStream(Generic[T]):
    """Passes every Event that a field selector matches to `receive`. `problem` is the current failure, if any."""

    def __init__(
        self,
        connection: ApiConnection,
        item: type[T],
        *,
        selector: str,
        receive: Callable[[T], None],
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self.problem: str | None = None
        self.is_following = asyncio.Event()
        self._connection = connection
        self._selector = selector
        self._receive = receive
        self._pace = pace
        self._event: msgspec.json.Decoder[WatchEvent[T]] = msgspec.json.Decoder(WatchEvent[item])  # type: ignore[valid-type]

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        failures = 0
        while True:
            try:
                await self._watch(await self._current_version())
                failures = 0
            except ClusterError as error:
                failures += 1
                self.problem = str(error)
                _log.warning("watch of events interrupted: %s", error)
            self.is_following.clear()
            await asyncio.sleep(self._pace.backoff(max(1, failures)))

    async def _current_version(self) -> str:
        seconds = self._pace.list_timeout
        page = await list_page(self._connection, PATH, {"limit": "1"}, action="list events", read_seconds=seconds)
        return page.metadata.resource_version

    async def _watch(self, version: str) -> None:
        params = {
            "watch": "1",
            "resourceVersion": version,
            "fieldSelector": self._selector,
            "timeoutSeconds": str(STREAM_SECONDS),
        }
        async with self._connection.get(PATH, params, action="watch events", read_seconds=_READ_SECONDS) as response:
            self.problem = None
            self.is_following.set()
            splitter = LineSplitter()
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                for line in splitter.feed(chunk):
                    self._read(line)
                await asyncio.sleep(0)  # reviews have priority

    def _read(self, line: bytes) -> None:
        """Decode one line; one that is not an Event is skipped: a tenant may write malformed ones."""
        try:
            event = self._event.decode(line)
        except msgspec.DecodeError:
            return
        if event.type in ("ADDED", "MODIFIED"):
            self._receive(event.object)


# A time slice on the event loop, after which other tasks get to run.


class TimeSlice:
    """A time slice that starts when it is created, and again with each `pause`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._end = pace.clock() + pace.slice_seconds

    @property
    def is_spent(self) -> bool:
        """Whether the slice is over."""
        return self._pace.clock() >= self._end

    async def pause(self) -> None:
        """Let other tasks run, then start the next slice."""
        await asyncio.sleep(0)
        self._end = self._pace.clock() + self._pace.slice_seconds


# The resourceVersion that a watch has reached.


class WatchPosition:
    """A resourceVersion; "" if it is unknown, which requires a list.

    The version of an event is decoded on demand, because that costs half as much as decoding the event.
    """

    def __init__(self) -> None:
        self._version = ""
        self._reached = 0
        self._line: bytes | None = None

    @property
    def version(self) -> str:
        """The version from which a watch can continue, "" if a list is needed."""
        self._read_version()
        return self._version

    @property
    def reached(self) -> int:
        """The last known version as an integer; `reset` keeps it."""
        self._read_version()
        return self._reached

    def advance(self, line: bytes) -> None:
        """Move to the version of an event's object, which was applied."""
        self._line = line

    def reset(self) -> None:
        """Require a list; `reached` stays."""
        self._read_version()
        self._version = ""

    def set(self, version: str) -> None:
        """Move to a version, also back to a smaller one."""
        self._line = None
        self._version = version
        if version.isdecimal():
            self._reached = int(version)

    def _read_version(self) -> None:
        if self._line is not None:
            self.set(version_of(self._line))
