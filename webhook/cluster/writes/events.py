"""Writes Events in the background: callers never wait for it, and its failures do not propagate."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, NoReturn

from webhook.cluster.api.client import MERGE_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import read
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace
from webhook.cluster.writes.correlation import Correlator, EventRecord
from webhook.kube.objects.events import Event, Identity, count_of, new_event, repeat_patch

WAITING: Final = 1000
"""Events that may wait to be written; a write takes some 3 ms, so more wait only while the API server is down."""

TRIES: Final = 5
"""Attempts per event, with backoffs of about 0.5, 1, 2 and 4 s: a later Event would be of no use."""

_log: Final = logging.getLogger("webhook.cluster.writes.events")


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
