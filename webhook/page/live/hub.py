"""The hub: sends what changed to every open page, and drops a page that does not keep up."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from webhook.core.model.names import NodeName
from webhook.page.access.persons import yields_to
from webhook.page.live.cluster_state import ClusterState
from webhook.page.views.gpu_map import MapRow, encode, seen_by
from webhook.page.views.viewer import Viewer

CLIENTS: Final = 200
"""Streams that are open at a time; where there would be more, the person with most gives up the oldest."""

CLIENTS_OF_ONE: Final = 12
"""Of one person: a browser allows six of a host anyway."""

BUFFERED: Final = 64
"""Messages that may wait for a client."""

BUFFERED_BYTES: Final = 8 << 20
"""Bytes that may wait for a client."""

GATHER_SECONDS: Final = 0.05
"""Changes of so long are sent together."""

TICK_SECONDS: Final = 1.0
"""At most so often pages fetch again what is not sent row by row."""

STALE_SECONDS: Final = 3.0
"""So often it is looked whether the state is out of date: then nothing changes, and nothing else would say so."""

_SLICE: Final = 100


class TooManyError(Exception):
    """No further stream is possible now."""


class Client:
    """One open stream: the messages that wait for it, and whether it was dropped.

    `shown` are the rows as a viewer who may not read all was sent them: of others nothing is sent, not even that they
    changed or went.
    """

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.is_dropped = False
        self.shown: dict[NodeName, MapRow] = {}
        self._messages: asyncio.Queue[bytes] = asyncio.Queue(BUFFERED)
        self._bytes = 0

    async def next(self) -> bytes:
        """Return the next message; b"" once it was dropped."""
        if self.is_dropped:
            return b""
        message = await self._messages.get()
        self._bytes -= len(message)
        return b"" if self.is_dropped else message

    def put(self, message: bytes) -> None:
        """Queue a message; a client whose buffer is full is dropped, and its browser connects again."""
        if self._messages.full() or self._bytes + len(message) > BUFFERED_BYTES:
            self.drop()
            return
        self._bytes += len(message)
        self._messages.put_nowait(message)

    def drop(self) -> None:
        """End the stream after what is being sent."""
        self.is_dropped = True
        if self._messages.empty():
            self._messages.put_nowait(b"")


class Hub:
    """All open streams of one state. Start `run` as a task. `dropped` counts the clients that did not keep up."""

    def __init__(self, state: ClusterState) -> None:
        self.dropped = 0
        self._state = state
        self._clients: dict[Client, None] = {}  # the oldest first
        self._changed = asyncio.Event()
        self._published = asyncio.Event()
        self._changed.set()  # the state may have been filled before
        state.on_change = self._changed.set

    @property
    def clients(self) -> int:
        """How many streams are open."""
        return len(self._clients)

    def hello(self) -> bytes:
        """Return the first message of a stream: the number of the last rows that were sent, and why they are old."""
        return _message("hello", msgspec.json.encode({"sequence": self._state.sequence, "stale": self._stale()}))

    def join(self, viewer: Viewer) -> Client:
        """Open a stream for a viewer, where a person with more of them gives up one if need be. Raises TooManyError."""
        counts = Counter(each.viewer.person for each in self._clients)
        if counts[viewer.person] >= CLIENTS_OF_ONE:
            raise TooManyError
        if len(self._clients) >= CLIENTS:
            most = yields_to(viewer.person, counts)
            if most is None:
                raise TooManyError
            oldest = next(each for each in self._clients if each.viewer.person == most)
            oldest.drop()
            self.leave(oldest)
        client = Client(viewer)
        if not viewer.sees_all:
            rows = self._state.rows.items()
            client.shown = {name: seen for name, row in rows if (seen := seen_by(row, viewer)) is not None}
        self._clients[client] = None
        return client

    def leave(self, client: Client) -> None:
        """Forget a stream."""
        self._clients.pop(client, None)

    def drop_all(self) -> None:
        """End every stream."""
        for client in self._clients:
            client.drop()

    async def run(self) -> None:
        """Send changes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_rows())
            group.create_task(self._tick())
            group.create_task(self._follow_staleness())

    async def _follow_rows(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            await self.publish_rows()
            self._published.set()

    async def _tick(self) -> None:
        while True:
            await self._published.wait()
            self._published.clear()
            self._send(_message("tick", msgspec.json.encode({"sequence": self._state.sequence})))
            await asyncio.sleep(TICK_SECONDS)

    async def _follow_staleness(self) -> None:
        said = ""
        while True:
            await asyncio.sleep(STALE_SECONDS)
            if bool(why := self._stale()) != bool(said):
                self._send(_message("stale", msgspec.json.encode({"stale": why})))
            said = why

    def _stale(self) -> str:
        return self._state.why_stale() or ""

    async def publish_rows(self) -> None:
        """Compute the rows that changed and send them, in slices so that requests are answered meanwhile."""
        dirty = self._state.take_dirty()
        for start in range(0, len(dirty), _SLICE):
            changed = list(self._state.changed_rows(dirty[start : start + _SLICE]))
            if changed:
                self._state.sequence += 1
                self._send_rows(changed)
            await asyncio.sleep(0)

    def _send_rows(self, changed: Iterable[tuple[NodeName, MapRow | None]]) -> None:
        found = tuple(changed)
        whole = b""
        for client in list(self._clients):
            if client.viewer.sees_all:
                whole = whole or rows_message(self._state.sequence, found)
                self._put(client, whole)
            else:
                own = tuple(_own(client, found))
                if own:
                    self._put(client, rows_message(self._state.sequence, own))

    def _send(self, message: bytes) -> None:
        for client in list(self._clients):
            self._put(client, message)

    def _put(self, client: Client, message: bytes) -> None:
        client.put(message)
        if client.is_dropped:
            self.dropped += 1
            self._clients.pop(client, None)


def _own(client: Client, changed: Iterable[tuple[NodeName, MapRow | None]]) -> Iterator[tuple[NodeName, MapRow | None]]:
    """Yield what a viewer who may not read all sees of rows that changed, where that changed."""
    for name, row in changed:
        seen = None if row is None else seen_by(row, client.viewer)
        if seen == client.shown.get(name):
            continue
        if seen is None:
            del client.shown[name]
        else:
            client.shown[name] = seen
        yield name, seen


def rows_message(sequence: int, rows: Iterable[tuple[NodeName, MapRow | None]]) -> bytes:
    """Return a message with the rows of nodes; null for a node that is not, or no longer, shown."""
    parts = (msgspec.json.encode(name) + b":" + (b"null" if row is None else encode(row)) for name, row in rows)
    return _message("rows", b'{"sequence":%d,"rows":{%s}}' % (sequence, b",".join(parts)))


def _message(event: str, data: bytes) -> bytes:
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
