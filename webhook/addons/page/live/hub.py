"""Who watches what.

The hub: sends what changed to every open page, and drops a page that does not keep up.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec

from webhook.addons.page.access.access import yields_to
from webhook.addons.page.live.cluster_state import ClusterState, Reading, event_kinds, is_fresh, page_kinds, report_kind
from webhook.addons.page.views.gpu_map import MapRow, encode, seen_by
from webhook.addons.page.views.teams import Viewer
from webhook.cluster.api.client import ApiConnection, ClusterError
from webhook.cluster.watch.feed import AutoscalerWatch, Feed
from webhook.core.model.amounts import NodeName
from webhook.core.model.policy import Policy

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


# Keeps the state of the page: by watches where the user may watch everything, else by reading again what they may.


AGAIN_SECONDS: Final = 15.0
"""Between two readings where watching is not allowed."""

UPDATE_SECONDS: Final = 5.0
"""Between two looks at what changes with time alone: which nodes reject pods, and stages of pods."""

_POLL_SECONDS: Final = 0.05
READING: Final = "The cluster is being read. Load this page again in a few seconds."
_NO_EVENTS: Final = "decisions are those on existing pods: you may not list Events in all namespaces"
_log: Final = logging.getLogger(__name__)


Reread = Callable[[], Awaitable[Reading]]
"""Reads once what may be read. Raises ClusterError."""

ReadPolicy = Callable[[Mapping[str, Any]], Policy | None]
"""Reads the policy of a Report; None where this version cannot."""


class StateUpdater:
    """Keeps the state of a live cluster. `reread` reads what is allowed where watching is not.

    `read_policy` is None where the policy is that of a folder, and stays.
    """

    def __init__(
        self, connection: ApiConnection, state: ClusterState, *, reread: Reread, read_policy: ReadPolicy | None
    ) -> None:
        self.is_listed = asyncio.Event()
        self._connection = connection
        self._state = state
        self._reread = reread
        self._read_policy = read_policy
        self._is_forbidden = asyncio.Event()

    async def run(self) -> None:
        """Keep the state until cancelled."""
        async with asyncio.TaskGroup() as group:
            parts = (self._follow_events(), self._follow_reports(), self._follow())
            following = [group.create_task(part) for part in parts]
            await self._is_forbidden.wait()
            for each in following:
                each.cancel()  # an error would do it, too, but a group that ends by one loses a cancellation meanwhile
        await self._read_again()

    async def _follow(self) -> None:
        """Watch everything; set `_is_forbidden` where that is not allowed."""
        state = self._state
        autoscalers = AutoscalerWatch(
            self._connection,
            state.world,
            note=lambda found: state.note_autoscalers(found.autoscalers, time.time()),
        )
        feed = Feed(self._connection, page_kinds(state), autoscalers=autoscalers)
        state.tick(int(time.time()))
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            while feed.why_not_synced() is not None:
                if feed.forbidden is not None:
                    self._is_forbidden.set()
                    return
                if problem := next((watch.problem for watch in feed.watches if watch.problem), None):
                    state.problem = f"{READING} {problem}"
                await asyncio.sleep(_POLL_SECONDS)
            for kind in feed.left_out():
                self._note(f"you may not list {kind}")
            state.world.sort_nodes()
            state.why_stale = feed.readiness
            state.tick(int(time.time()))
            self._show()
            while True:
                await asyncio.sleep(UPDATE_SECONDS)
                state.tick(int(time.time()))

    async def _follow_events(self) -> None:
        """Follow Events as far as that is allowed: without them the page has less to say, and still works."""
        feed = Feed(self._connection, event_kinds(self._state))
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            while feed.why_not_synced() is not None:
                if feed.forbidden is not None:
                    self._note(_NO_EVENTS)
                    break
                await asyncio.sleep(_POLL_SECONDS)

    async def _follow_reports(self) -> None:
        """Follow what Fairgate publishes, as far as that is allowed: the policy, and how long pods waited."""

        def apply(report: Mapping[str, Any]) -> None:
            policy = None if self._read_policy is None else self._read_policy(report)
            if policy is not None and policy != self._state.world.policy:
                self._state.set_policy(policy)

        await Feed(self._connection, (report_kind(self._state, apply),)).run()

    async def _read_again(self) -> NoReturn:
        while True:
            try:
                reading = await self._reread()
            except ClusterError as error:
                self._say_old(str(error))
            else:
                self._state.replace(reading)
                self._state.why_stale = is_fresh
                self._show()
            self.is_listed.set()
            await asyncio.sleep(AGAIN_SECONDS)

    def _say_old(self, why: str) -> None:
        """Say that nothing newer can be read; what was read before stays."""
        if self._state.problem:
            self._state.problem = why
        else:
            self._state.why_stale = lambda: why

    def _show(self) -> None:
        self._state.problem = ""
        self._state.touch_all()
        self.is_listed.set()

    def _note(self, text: str) -> None:
        reading = self._state.reading
        if text not in reading.notes:
            reading.notes = (*reading.notes, text)
