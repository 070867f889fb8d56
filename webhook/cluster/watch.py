"""List-watch of one kind: keeps its keeper equal to the API server, through every failure, without stalling the loop.

The order of things: list page by page, apply in slices, remove what vanished; then watch from the list's version, and
go on watching from the last version seen. Only a server that forgot that version (410), or a stream that made no
sense, leads back to a list. Nothing here gives up; `problem` and `last_contact` tell readiness how it goes.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, NoReturn, TypeVar

import msgspec

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ApiError, ClusterError, LostTrackError
from webhook.cluster.kind import Kind, T
from webhook.cluster.pace import Pace
from webhook.cluster.wire import Event, LineSplitter, Page, any_object, status_of

X = TypeVar("X")
_PAGE: Final = msgspec.json.Decoder(Page)
_EVENT: Final = msgspec.json.Decoder(Event)
_log: Final = logging.getLogger("webhook.cluster.watch")


class Watch(Generic[T]):
    """The list-watch of one kind. Start `run` as a task; everything public is to be read only.

    `reached`: every change of this kind up to this resourceVersion has been applied; 0 before the first full list.
    The API promises that versions of one kind compare as integers (KEP-5504).
    `listed` is set once a first full list was applied. `last_contact`: loop time of the last page, event or bookmark.
    `relists` counts full lists after the first, `events` what the watch brought, `rejected` what could not be read.
    `problem` is the failure that lasts, None while all is well.
    """

    def __init__(self, connection: ApiConnection, kind: Kind[T], *, pace: Pace) -> None:
        self.kind = kind
        self.reached = 0
        self.listed = asyncio.Event()
        self.last_contact: float | None = None
        self.relists = 0
        self.events = 0
        self.rejected = 0
        self.problem: str | None = None
        self._connection = connection
        self._pace = pace
        self._decoder = msgspec.json.Decoder(kind.item)
        self._known: dict[str, str] = {}  # key → handle, of what the keeper holds
        self._version = ""  # where the next watch starts; "" asks for a list
        self._opened: float | None = None  # when the server took the current watch

    @property
    def synced(self) -> bool:
        """Tell whether a first full list was applied."""
        return self.listed.is_set()

    async def run(self) -> NoReturn:
        """Keep the keeper equal to the server until cancelled."""
        failures = 0
        while True:
            self._opened = None
            asked = 0.0
            start = self._version
            try:
                if not self._version:
                    await self._list()
                    start = self._version
                await self._follow()
            except ClusterError as error:
                if isinstance(error, ApiError) and error.is_missing and self.kind.is_optional:
                    await self._withdraw()
                    await asyncio.sleep(self._pace.absent_rest)
                    continue
                asked = self._note(error)
            failures = self._failures(failures, start)
            await asyncio.sleep(self._pace.rest(failures, asked=asked))

    def _note(self, error: ClusterError) -> float:
        """Remember what went wrong and where to go on; give the seconds that the server asked us to stay away."""
        self.problem = str(error)
        _log.warning("watch of %s interrupted: %s", self.kind.name, error)
        if isinstance(error, LostTrackError) or (isinstance(error, ApiError) and error.is_gone):
            self._version = ""
        return error.retry_after_seconds if isinstance(error, ApiError) else 0.0

    def _failures(self, before: int, start: str) -> int:
        """Count failures in a row, this round included.

        A watch that ends early counts as one even when the server ended it politely: one that always does so must
        not make us ask without pause. If it brought something, it is a first failure at most.
        """
        if self._opened is not None and self._now() - self._opened >= self._pace.settled:
            return 0
        if self._version and self._version != start:
            return 1
        return before + 1

    async def _list(self) -> None:
        unseen = await self._all_known()
        version = token = ""
        while True:
            page = await self._page(token)
            self._contact()
            # The first page's version: should later pages ever be of another state, the watch replays the difference.
            version = version or page.metadata.resource_version
            for batch in self._slices(page.items or ()):
                await asyncio.sleep(0)
                for item in batch:
                    unseen.discard(self._take(item))
            token = page.metadata.continue_
            if not token:
                break
        await self._forget_all(unseen)
        if not version:
            raise ClusterError(f"cannot list {self.kind.name}: the answer has no resourceVersion")
        self._go_on_from(version)
        self.relists += self.synced
        self.listed.set()
        self.problem = None

    async def _page(self, token: str) -> Page:
        params = {**self.kind.params, "limit": str(self._pace.page)}
        if token:
            params["continue"] = token
        action = f"list {self.kind.name}"
        async with self._connection.get(
            self.kind.path, params, action=action, read_seconds=self._pace.list_read
        ) as response:
            body = await response.read()
        try:
            return _PAGE.decode(body)
        except msgspec.DecodeError as cause:
            raise ClusterError(f"cannot {action}: the answer is not a list: {cause}") from cause

    async def _follow(self) -> None:
        """Watch from the version we have until the stream ends, politely or not."""
        params = {
            **self.kind.params,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._pace.lifetime()),
        }
        async with self._connection.get(
            self.kind.path, params, action=f"watch {self.kind.name}", read_seconds=self._pace.watch_read
        ) as response:
            self._opened = self._now()
            self._contact()
            self.problem = None
            splitter = LineSplitter()
            async for chunk in response.content.iter_any():
                await self._read(splitter.feed(chunk))
        # A rest without newline is an object cut in two: it comes again, for its version was not taken over.

    async def _read(self, lines: Sequence[bytes]) -> None:
        """Apply events in slices. The version is read once a batch: it costs as much as the event itself."""
        last: msgspec.Raw | None = None
        try:
            for number, batch in enumerate(self._slices(lines)):
                if number:
                    await asyncio.sleep(0)
                for line in batch:
                    event = self._event(line)
                    self._contact()
                    self._apply(event)
                    last = event.object
        finally:
            if last is not None:
                self._go_on_from(any_object(last).metadata.resource_version)

    def _event(self, line: bytes) -> Event:
        try:
            return _EVENT.decode(line)
        except msgspec.DecodeError as cause:
            raise LostTrackError(f"cannot watch {self.kind.name}: a line is no event: {cause}") from cause

    def _apply(self, event: Event) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                self.events += 1
                self._take(event.object)
            case "DELETED":
                self.events += 1
                self._drop(event.object)
            case "ERROR":
                status = status_of(event.object)
                raise LostTrackError(f"watching {self.kind.name} ended: {status.code} {status.message}")
            case _:
                pass  # BOOKMARK: its version is all it brings

    def _take(self, raw: msgspec.Raw) -> str:
        """Apply an object as it is now; give its key."""
        try:
            item = self._decoder.decode(raw)
            key, handle = self.kind.key(item), self.kind.handle(item)
            before = self._known.get(key)
            if before is not None and before != handle:
                self._forget(key)  # deleted and made again, and nobody told us
            if self.kind.apply(item):
                self._known[key] = handle
            else:
                self._forget(key)
        except (msgspec.DecodeError, ValueError) as error:
            return self._reject(raw, error)
        return key

    def _drop(self, raw: msgspec.Raw) -> None:
        try:
            item = self._decoder.decode(raw)
            key, handle = self.kind.key(item), self.kind.handle(item)
        except msgspec.DecodeError as error:
            self._forget(self._reject(raw, error))
            return
        if self._known.get(key) == handle:
            self._forget(key)

    def _forget(self, key: str) -> None:
        handle = self._known.pop(key, None)
        if handle is not None:
            self.kind.remove(handle)

    def _reject(self, raw: msgspec.Raw, error: Exception) -> str:
        self.rejected += 1
        key = any_object(raw).key
        _log.warning("object skipped: %s %s: %s", self.kind.name, key, error)
        return key

    async def _withdraw(self) -> None:
        """Take note that the server has no such API: that is a complete list of nothing."""
        await self._forget_all(await self._all_known())
        self._version = ""
        self.listed.set()
        self.problem = None
        self._contact()

    async def _all_known(self) -> set[str]:
        """Copy the known keys in slices: 50,000 at once take 9 ms. Only while no watch changes them."""
        keys: set[str] = set()
        for batch in self._slices(self._known):
            keys.update(batch)
            await asyncio.sleep(0)
        return keys

    async def _forget_all(self, keys: set[str]) -> None:
        for batch in self._slices(keys):
            await asyncio.sleep(0)
            for key in batch:
                self._forget(key)

    def _slices(self, things: Iterable[X]) -> Iterator[list[X]]:
        rest = iter(things)
        while batch := list(islice(rest, self._pace.slice)):
            yield batch

    def _go_on_from(self, version: str) -> None:
        self._version = version
        if version.isdecimal():
            self.reached = int(version)

    def _contact(self) -> None:
        self.last_contact = self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
