"""List-watch of one kind: keeps its keeper equal to the API server, through every failure, without stalling the loop.

The order of things: ask for a watch that begins with all there is (or, where the server does not know how, list page
by page), apply in slices, remove what vanished; then follow the changes, and go on watching from the last version seen.
Only a server that forgot that version (410), or a stream that made no sense, leads back to a list. While a list comes
in, the keeper holds what it held before and what was listed so far: nothing is missed in mid-list. Nothing here gives
up; `problem` and `last_contact` tell readiness how it goes.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Generic, NoReturn

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError, LostTrackError
from webhook.cluster.api.wire import Event, LineSplitter, Page, any_object, status_of
from webhook.cluster.watch.pace import Pace
from webhook.cluster.watch.store import Mirror
from webhook.cluster.watch.time_slice import Slice
from webhook.cluster.watch.watch_position import Position
from webhook.cluster.watch.watched_kind import T, WatchedKind
from webhook.kube.objects.bounds import LARGE_BYTES

_FROM_ALL: Final = MappingProxyType({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
_PAGE: Final = msgspec.json.Decoder(Page)
_RAW_EVENT: Final = msgspec.json.Decoder(Event[msgspec.Raw])
_CHUNK_BYTES: Final = 65_536
"""Read at once. All that aiohttp has buffered may be 400 KB, a third dearer by byte: it leaves the caches."""
_log: Final = logging.getLogger("webhook.cluster.watch.watch")


class Watch(Generic[T]):
    """The list-watch of one kind. Start `run` as a task; everything public is to be read only.

    `listed` is set once a first full list was applied. `last_contact`: loop time at which the keeper was last known to
    follow the server: the end of a list, an event or a bookmark; what comes in mid-list does not count.
    `relists` counts full lists after the first, `events` changes since they were listed.
    `problem` is the failure that lasts, None while all is well; `is_forbidden` tells whether it is a lack of rights.
    """

    def __init__(self, connection: ApiConnection, kind: WatchedKind[T], *, pace: Pace) -> None:
        self.kind = kind
        self.listed = asyncio.Event()
        self.last_contact: float | None = None
        self.relists = 0
        self.events = 0
        self.problem: str | None = None
        self.is_forbidden = False
        self._connection = connection
        self._pace = pace
        self._item: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.item)
        self._event: msgspec.json.Decoder[Event[T]] = msgspec.json.Decoder(Event[kind.item])  # type: ignore[name-defined]
        self._mirror = Mirror(kind)
        self._position = Position()
        self._start = ""  # the version at which following began
        self._unseen: set[str] | None = None  # while a list comes in: what it has not named yet
        self._opened: float | None = None  # loop time at which following began

    @property
    def synced(self) -> bool:
        """Tell whether a first full list was applied."""
        return self.listed.is_set()

    @property
    def reached(self) -> int:
        """The resourceVersion up to which every change of this kind was applied; 0 before the first full list.

        The API promises that versions of one kind compare as integers (KEP-5504).
        """
        return self._position.reached

    @property
    def rejected(self) -> int:
        """How many objects could not be read or made no sense."""
        return self._mirror.rejected

    def handle(self, key: str) -> str | None:
        """Tell what is held under a key: "" for an object that is only known to be there, None for none."""
        return self._mirror.handle(key)

    async def run(self) -> NoReturn:
        """Keep the keeper equal to the server until cancelled."""
        failures = 0
        while True:
            self._opened = None
            asked = 0.0
            self._start = self._position.version
            try:
                if self._start:
                    await self._follow({"resourceVersion": self._start})
                else:
                    await self._start_over()
            except ClusterError as error:
                if isinstance(error, ApiError) and error.is_missing and self.kind.is_optional:
                    await self._withdraw()
                    await asyncio.sleep(self._pace.missing_api_backoff)
                    continue
                asked = self._note(error)
            failures = self._failures(failures)
            await asyncio.sleep(self._pace.rest(failures, asked=asked))

    def _note(self, error: ClusterError) -> float:
        """Remember what went wrong and where to go on; give the seconds that the server asked us to stay away."""
        self.problem = str(error)
        self.is_forbidden = isinstance(error, ApiError) and error.is_forbidden
        _log.warning("watch of %s interrupted: %s", self.kind.name, error)
        if isinstance(error, LostTrackError) or (isinstance(error, ApiError) and error.is_gone):
            self._position.lose()
        return error.retry_after_seconds if isinstance(error, ApiError) else 0.0

    def _failures(self, before: int) -> int:
        """Count failures in a row, this round included.

        A watch that ends early counts as one even when the server ended it politely: one that always does so must
        not make us ask without pause. If it brought something, it is a first failure at most.
        """
        if self._opened is not None and self._now() - self._opened >= self._pace.settled:
            return 0
        version = self._position.version
        if version and version != self._start:
            return 1
        return before + 1

    async def _start_over(self) -> None:
        """List everything, as a stream where the server knows how, and follow from there."""
        self._unseen = await self._all_keys()
        try:
            await self._follow(_FROM_ALL)
            if self._unseen is not None:
                raise ClusterError(f"cannot list {self.kind.name}: the stream ended before the list was complete")
        except ApiError as refusal:
            if not refusal.is_invalid:
                raise
            await self._list_pages(self._unseen or set())
            await self._follow({"resourceVersion": self._start})
        finally:
            self._unseen = None

    async def _list_pages(self, unseen: set[str]) -> None:
        version = token = ""
        while True:
            page = await self._page(token)
            # The first page's version: should later pages ever be of another state, the watch replays the difference.
            version = version or page.metadata.resource_version
            slice_ = Slice(self._pace)
            for item in page.items or ():
                if slice_.is_spent:
                    await slice_.rest()
                unseen.discard(self._take_raw(item))
            token = page.metadata.continue_
            if not token:
                break
        await self._finish_list(version, unseen)

    async def _page(self, token: str) -> Page:
        params = {**self.kind.params, "limit": str(self._pace.page)}
        if token:
            params["continue"] = token
        action = f"list {self.kind.name}"
        async with self._connection.get(
            self.kind.path, params, action=action, read_seconds=self._pace.list_timeout
        ) as response:
            body = await response.read()
        try:
            return _PAGE.decode(body)
        except msgspec.DecodeError as cause:
            raise ClusterError(f"cannot {action}: the answer is not a list: {cause}") from cause

    async def _finish_list(self, version: str, unseen: set[str]) -> None:
        """Remove what the list did not name: only now is it sure that all was named."""
        if not version:
            raise ClusterError(f"cannot list {self.kind.name}: the answer has no resourceVersion")
        await self._forget_all(unseen)
        self._unseen = None
        self._position.set(version)
        self._start = version
        self.relists += self.synced
        self.listed.set()
        self._is_following()

    def _is_following(self) -> None:
        self._opened = self._now()
        self.last_contact = self._opened
        self.problem, self.is_forbidden = None, False

    async def _follow(self, origin: Mapping[str, str]) -> None:
        """Watch from an origin until the stream ends, politely or not."""
        params = {
            **self.kind.params,
            **origin,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._pace.lifetime()),
        }
        async with self._connection.get(
            self.kind.path, params, action=f"watch {self.kind.name}", read_seconds=self._pace.watch_timeout
        ) as response:
            if self._unseen is None:
                self._is_following()
            # One slice for the whole stream: a read does not wait for its turn while there is something buffered.
            splitter, slice_ = LineSplitter(), Slice(self._pace)
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                await self._read(splitter.feed(chunk), slice_)
        # A rest without newline is an object cut in two: it comes again, for its version was not taken over.

    async def _read(self, lines: Iterable[bytes], slice_: Slice) -> None:
        """Apply the lines of a stream."""
        for line in lines:
            if slice_.is_spent:
                await slice_.rest()
            listed = self._apply(line)
            if listed is not None and self._unseen is not None:
                await self._finish_list(listed, self._unseen)
            elif self._unseen is None:
                self._position.passes(line)
                self.last_contact = self._now()

    def _apply(self, line: bytes) -> str | None:
        """Apply one event; give the version of the list that it completes, if it does."""
        try:
            event = self._event.decode(line) if len(line) <= LARGE_BYTES else self._trimmed(line)
        except msgspec.DecodeError as error:
            return self._apply_other(line, error)
        match event.type:
            case "ADDED" | "MODIFIED":
                key = self._mirror.take(event.object)
            case "DELETED":
                key = self._mirror.drop(event.object)
            case _:
                return self._apply_other(line, None)
        self._count(key)
        return None

    def _trimmed(self, line: bytes) -> Event[T]:
        raw = _RAW_EVENT.decode(line)
        return Event(raw.type, self._decode(raw.object))

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
        """Apply an event that brings no object of our type: a bookmark, an error, an object that makes no sense."""
        try:
            event = _RAW_EVENT.decode(line)
        except msgspec.DecodeError as cause:
            raise LostTrackError(f"cannot watch {self.kind.name}: a line is no event: {cause}") from cause
        match event.type:
            case "BOOKMARK":
                bookmark = any_object(event.object)
                return bookmark.metadata.resource_version if bookmark.ends_list else None
            case "ERROR":
                status = status_of(event.object)
                raise LostTrackError(f"watching {self.kind.name} ended: {status.code} {status.message}")
            case "ADDED" | "MODIFIED" | "DELETED" if error is not None:
                key = any_object(event.object).key
                self._mirror.reject(key, error, b"" if event.type == "DELETED" else bytes(event.object))
                if event.type == "DELETED":
                    self._mirror.forget(key)
                self._count(key)
        return None

    def _take_raw(self, raw: msgspec.Raw) -> str:
        try:
            return self._mirror.take(self._decode(raw))
        except msgspec.DecodeError as error:
            key = any_object(raw).key
            self._mirror.reject(key, error, bytes(raw))
            return key

    async def _withdraw(self) -> None:
        """Take note that the server has no such API: that is a complete list of nothing."""
        await self._forget_all(await self._all_keys())
        self._position.lose()
        self.listed.set()
        self.problem = None
        self.last_contact = self._now()

    async def _all_keys(self) -> set[str]:
        """Copy the known keys in slices: 50,000 at once take 9 ms. Only while no watch changes them."""
        keys: set[str] = set()
        slice_ = Slice(self._pace)
        for key in self._mirror.keys:
            keys.add(key)
            if slice_.is_spent:
                await slice_.rest()
        return keys

    async def _forget_all(self, keys: Iterable[str]) -> None:
        slice_ = Slice(self._pace)
        for key in keys:
            if slice_.is_spent:
                await slice_.rest()
            self._mirror.forget(key)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
