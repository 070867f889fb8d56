"""List-watch of one kind: keeps its sink equal to the API server, through every failure, without blocking the loop.

Steps: open a watch that begins with all existing objects (or list page by page, if the server does not support that),
apply in time slices, remove objects that were not listed; then apply changes, and reopen the watch from the last
version. Only an expired version (410), a malformed stream or a restored etcd requires another list. During a list the
sink holds its earlier objects and those listed so far, so that no object is missing meanwhile. A watch never gives up;
readiness reads `problem` and `last_contact`.

A server whose etcd was restored from a backup is at an earlier version than the watch. It accepts such a watch, and
sends nothing until it is past that version (kube-apiserver, cacheWatcher.process). So each time before a watch is
opened again, the server's version is read.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Generic, NoReturn

import msgspec

from webhook.cluster.api.client import (
    ApiConnection,
    ApiError,
    ClusterError,
    LineSplitter,
    ListPage,
    LostTrackError,
    RestoredError,
    WatchEvent,
    any_object,
    status_of,
)
from webhook.cluster.api.requests import list_page
from webhook.cluster.watch.event_stream import ObjectStore, Pace, TimeSlice, WatchPosition
from webhook.kube.objects.bounds import LARGE_BYTES
from webhook.kube.objects.keys import served_paths
from webhook.kube.watched.kinds import T, WatchedKind

_FROM_ALL: Final = MappingProxyType({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
_RAW_EVENT: Final = msgspec.json.Decoder(WatchEvent[msgspec.Raw])
_CHUNK_BYTES: Final = 65_536
"""Bytes per read. aiohttp may buffer 400 KB, which costs a third more per byte: it does not fit the CPU caches."""
_log: Final = logging.getLogger("webhook.cluster.watch.watch")


def _ignore(_error: RestoredError) -> None:
    return


class Watch(Generic[T]):
    """The list-watch of one kind. Start `run` as a task; public attributes are read only.

    `listed` is set once a first full list was applied. `last_contact`: loop time of the last end of a list, event or
    bookmark; objects of an unfinished list do not count. `relists` counts full lists after the first, `events` changes
    since they were listed. `problem` is the current failure, None if there is none; `is_forbidden`: RBAC forbids it.
    `on_restored` receives the error if the server is at an earlier version than the watch; the watch lists again.
    """

    def __init__(
        self,
        connection: ApiConnection,
        kind: WatchedKind[T],
        *,
        pace: Pace,
        on_restored: Callable[[RestoredError], None] = _ignore,
    ) -> None:
        self.kind = kind
        self.listed = asyncio.Event()
        self.last_contact: float | None = None
        self.relists = 0
        self.events = 0
        self.problem: str | None = None
        self.is_forbidden = False
        self._connection = connection
        self._pace = pace
        self._on_restored = on_restored
        self._item: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.item)
        self._event: msgspec.json.Decoder[WatchEvent[T]] = msgspec.json.Decoder(WatchEvent[kind.item])  # type: ignore[name-defined]
        self._store = ObjectStore(kind)
        self._position = WatchPosition()
        self._paths = served_paths(kind.path)  # the first is in use
        self._missing = 0  # how many of them the server did not have, in a row
        self._start = ""  # the version at which the watch began
        self._unseen: set[str] | None = None  # during a list: the keys that it has not contained yet
        self._opened: float | None = None  # loop time at which the watch began

    @property
    def synced(self) -> bool:
        """Whether a first full list was applied."""
        return self.listed.is_set()

    @property
    def reached(self) -> int:
        """The resourceVersion up to which every change of this kind was applied; 0 before the first full list.

        The API promises that versions of one kind compare as integers (KEP-5504).
        """
        return self._position.reached

    @property
    def rejected(self) -> int:
        """How many objects could not be decoded or were invalid."""
        return self._store.rejected

    def handle(self, key: str) -> str | None:
        """Return the handle of a key: "" if only the name is known, None if there is no such object."""
        return self._store.handle(key)

    async def run(self) -> NoReturn:
        """Keep the sink equal to the server until cancelled."""
        failures = 0
        while True:
            self._opened = None
            retry_after = 0.0
            self._start = self._position.version
            try:
                if self._start:
                    await self._check_version()
                    await self._follow({"resourceVersion": self._start})
                else:
                    await self._list_and_follow()
            except ClusterError as error:
                if isinstance(error, ApiError) and error.is_missing and self.kind.is_optional:
                    await self._try_other_version()
                    continue
                retry_after = self._note(error)
                if self.is_forbidden and not self.kind.needs_right:
                    await self._apply_empty_list()
            failures = self._failures(failures)
            await asyncio.sleep(self._pace.backoff(failures, retry_after=retry_after))

    def _note(self, error: ClusterError) -> float:
        """Record a failure and whether it requires a list; return the server's Retry-After in seconds."""
        self.problem = str(error)
        self.is_forbidden = isinstance(error, ApiError) and error.is_forbidden
        _log.warning("watch of %s interrupted: %s", self.kind.name, error)
        if isinstance(error, RestoredError):
            self._position = WatchPosition()  # nothing is known to have been applied: no charge is judged on it
            self._on_restored(error)
        elif isinstance(error, LostTrackError) or (isinstance(error, ApiError) and error.is_gone):
            self._position.reset()
        return error.retry_after_seconds if isinstance(error, ApiError) else 0.0

    def _failures(self, before: int) -> int:
        """Count failures in a row, this round included.

        A watch that ends early counts as one even if the server ended it normally: otherwise a server that always does
        so would be called without pause. If the watch returned anything, it counts as a first failure at most.
        """
        if self._opened is not None and self._now() - self._opened >= self._pace.settled:
            return 0
        version = self._position.version
        if version and version != self._start:
            return 1
        return before + 1

    async def _list_and_follow(self) -> None:
        """List everything, as a stream if the server supports it, and watch from there."""
        self._unseen = await self._all_keys()
        try:
            await self._follow(_FROM_ALL)
            if self._unseen is not None:
                raise ClusterError(f"cannot list {self.kind.name}: the stream ended before the list was complete")
        except ApiError as error:
            if not error.is_invalid:
                raise
            await self._list_pages(self._unseen or set())
            await self._follow({"resourceVersion": self._start})
        finally:
            self._unseen = None

    async def _list_pages(self, unseen: set[str]) -> None:
        version = token = ""
        while True:
            page = await self._page(token)
            # The first page's version: if later pages are of another state, the watch replays the difference.
            version = version or page.metadata.resource_version
            slice_ = TimeSlice(self._pace)
            for item in page.items or ():
                if slice_.is_spent:
                    await slice_.pause()
                unseen.discard(self._apply_raw(item))
            token = page.metadata.continue_
            if not token:
                break
        await self._finish_list(version, unseen)

    async def _check_version(self) -> None:
        """Raise RestoredError if the server is at an earlier version than this watch."""
        found = (await self._page("", limit=1)).metadata.resource_version
        if found.isdecimal() and int(found) < self.reached:
            raise RestoredError(f"{self.kind.name} are", found=int(found), known=self.reached)

    async def _page(self, token: str, *, limit: int = 0) -> ListPage:
        params = {**self.kind.params, "limit": str(limit or self._pace.page)}
        if token:
            params["continue"] = token
        action, seconds = f"list {self.kind.name}", self._pace.list_timeout
        return await list_page(self._connection, self._paths[0], params, action=action, read_seconds=seconds)

    async def _finish_list(self, version: str, unseen: set[str]) -> None:
        """Remove the objects that the complete list did not contain."""
        if not version:
            raise ClusterError(f"cannot list {self.kind.name}: the response has no resourceVersion")
        await self._forget_all(unseen)
        self._unseen = None
        self._position.set(version)
        self._start = version
        self.relists += self.synced
        self.listed.set()
        self._set_following()

    def _set_following(self) -> None:
        self._missing = 0
        self._opened = self._now()
        self.last_contact = self._opened
        self.problem, self.is_forbidden = None, False

    async def _follow(self, origin: Mapping[str, str]) -> None:
        """Watch from an origin until the stream ends, normally or not."""
        params = {
            **self.kind.params,
            **origin,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._pace.lifetime()),
        }
        async with self._connection.get(
            self._paths[0], params, action=f"watch {self.kind.name}", read_seconds=self._pace.watch_timeout
        ) as response:
            if self._unseen is None:
                self._set_following()
            # One slice for the whole stream: a read does not yield to other tasks while bytes are buffered.
            splitter, slice_ = LineSplitter(), TimeSlice(self._pace)
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                await self._read(splitter.feed(chunk), slice_)
        # A last line without newline is a truncated object: it comes again, since the position did not advance.

    async def _read(self, lines: Iterable[bytes], slice_: TimeSlice) -> None:
        """Apply the lines of a stream."""
        for line in lines:
            if slice_.is_spent:
                await slice_.pause()
            listed = self._apply(line)
            if listed is not None and self._unseen is not None:
                await self._finish_list(listed, self._unseen)
            elif self._unseen is None:
                self._position.advance(line)
                self.last_contact = self._now()

    def _apply(self, line: bytes) -> str | None:
        """Apply one event; return the version of the list that it completes, None if it completes none."""
        try:
            event = self._event.decode(line) if len(line) <= LARGE_BYTES else self._trimmed(line)
        except msgspec.DecodeError as error:
            return self._apply_other(line, error)
        match event.type:
            case "ADDED" | "MODIFIED":
                key = self._store.apply(event.object)
            case "DELETED":
                key = self._store.delete(event.object)
            case _:
                return self._apply_other(line, None)
        self._count(key)
        return None

    def _trimmed(self, line: bytes) -> WatchEvent[T]:
        raw = _RAW_EVENT.decode(line)
        return WatchEvent(raw.type, self._decode(raw.object))

    def _decode(self, raw: msgspec.Raw) -> T:
        trim = self.kind.trim
        if trim is None or len(bytes(raw)) <= LARGE_BYTES:
            return self._item.decode(raw)
        return self._item.decode(trim(bytes(raw)))

    def _count(self, key: str) -> None:
        if self._unseen is None:
            self.events += 1
        else:
            self._unseen.discard(key)

    def _apply_other(self, line: bytes, error: Exception | None) -> str | None:
        """Apply an event without an object of our type: a bookmark, an error, an object that does not decode."""
        try:
            event = _RAW_EVENT.decode(line)
        except msgspec.DecodeError as cause:
            raise LostTrackError(f"cannot watch {self.kind.name}: a line is not an event: {cause}") from cause
        match event.type:
            case "BOOKMARK":
                bookmark = any_object(event.object)
                return bookmark.metadata.resource_version if bookmark.ends_list else None
            case "ERROR":
                status = status_of(event.object)
                raise LostTrackError(f"watching {self.kind.name} ended: {status.code} {status.message}")
            case "ADDED" | "MODIFIED" | "DELETED" if error is not None:
                key = any_object(event.object).key
                self._store.reject(key, error, b"" if event.type == "DELETED" else bytes(event.object))
                if event.type == "DELETED":
                    self._store.forget(key)
                self._count(key)
        return None

    def _apply_raw(self, raw: msgspec.Raw) -> str:
        try:
            return self._store.apply(self._decode(raw))
        except msgspec.DecodeError as error:
            key = any_object(raw).key
            self._store.reject(key, error, bytes(raw))
            return key

    async def _try_other_version(self) -> None:
        """Go on to the next version of the API; a server that has none of them is asked again later."""
        self._paths = (*self._paths[1:], self._paths[0])
        self._missing += 1
        if self._missing % len(self._paths) == 0:
            await self._apply_empty_list()
            self.problem = None
            await asyncio.sleep(self._pace.missing_api_backoff)

    async def _apply_empty_list(self) -> None:
        """Treat an API that the server does not have, or that may not be read, as a complete, empty list."""
        await self._forget_all(await self._all_keys())
        self._position.reset()
        self.listed.set()
        self.last_contact = self._now()

    async def _all_keys(self) -> set[str]:
        """Return a copy of the keys, made in slices: 50,000 at once take 9 ms. Only while no watch changes them."""
        keys: set[str] = set()
        slice_ = TimeSlice(self._pace)
        for key in self._store.keys:
            keys.add(key)
            if slice_.is_spent:
                await slice_.pause()
        return keys

    async def _forget_all(self, keys: Iterable[str]) -> None:
        slice_ = TimeSlice(self._pace)
        for key in keys:
            if slice_.is_spent:
                await slice_.pause()
            self._store.forget(key)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
