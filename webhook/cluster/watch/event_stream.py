"""Watches Events of one kind from now on. Earlier ones are not listed: kube-apiserver would read all Events.

Events are not in the API server's watch cache, so a list of some of them reads every Event of the cluster from etcd.
This lists one Event to get the current resourceVersion, and watches from there. Events written while it is not
connected are lost; the caller must tolerate that.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, NoReturn, TypeVar

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.list_page import list_page
from webhook.cluster.api.wire import LineSplitter, WatchEvent
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace

T = TypeVar("T")

PATH: Final = "/api/v1/events"
STREAM_SECONDS: Final = 240
"""How long one watch lasts: shorter than etcd keeps old versions."""

_READ_SECONDS: Final = STREAM_SECONDS + 30.0
_CHUNK_BYTES: Final = 65_536
_log: Final = logging.getLogger("webhook.cluster.watch.event_stream")


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
