"""Writes Events beside everything else: nobody waits for it, and nothing fails because of it."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, NoReturn

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace
from webhook.cluster.writes.correlation import Correlator, Told
from webhook.kube.objects.events import Event, Identity, count_of, new_event, repeat_patch

WAITING: Final = 1000
"""Events that may wait to be written; one is gone in some 3 ms, so more wait only while the API server is away."""

TRIES: Final = 5
"""How often one event is tried, resting about 0.5, 1, 2 and 4 s: what is told later than that helps nobody."""

_MERGE: Final = "application/merge-patch+json"
_log: Final = logging.getLogger("webhook.cluster.writes.events")


class EventWriter:
    """Tells Kubernetes what happened. Start `run` as a task.

    `written` counts writes, `held_back` events of which an object had too many, `dropped` those that were lost: the
    queue was full, or the API server would not take them.
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
        self._waiting: dict[Identity, Told] = {}
        self._has_work = asyncio.Event()

    def counts(self) -> dict[str, int]:
        """Give these counts by name, as metrics show them."""
        return {"written": self.written, "held_back": self.held_back, "dropped": self.dropped}

    def tell(self, event: Event, *, times: int = 1) -> None:
        """Have an event written soon, or counted if it was told before; returns at once, whatever happens."""
        now, wall, identity = asyncio.get_running_loop().time(), self._clock(), event.identity
        told = self._correlator.take(event, now=now, wall=wall, times=times)
        if told is None:
            self.held_back += 1
        elif len(self._waiting) >= WAITING and identity not in self._waiting:
            self.dropped += 1
        else:
            self._waiting[identity] = told
            self._has_work.set()

    async def run(self) -> NoReturn:
        """Write what is told until cancelled."""
        while True:
            await self._has_work.wait()
            told = self._waiting.pop(next(iter(self._waiting)))
            if not self._waiting:
                self._has_work.clear()
            await self._deliver(told)

    async def _deliver(self, told: Told) -> None:
        for failures in range(1, TRIES + 1):
            try:
                await self._write(told)
            except ClusterError as error:
                if failures == TRIES or not _may_pass(error):
                    self.dropped += 1
                    _log.warning("event %s on %s dropped: %s", told.event.reason, told.event.about.name, error)
                    return
                await asyncio.sleep(self._pace.rest(failures))
            else:
                self.written += 1
                return

    async def _write(self, told: Told) -> None:
        event = told.event
        path = f"/api/v1/namespaces/{event.namespace}/events"
        if told.is_written:
            try:
                await self._connection.send(
                    "PATCH",
                    f"{path}/{event.name}",
                    repeat_patch(event, count=told.count, last=told.last),
                    action="patch events",
                    content_type=_MERGE,
                )
            except ApiError as error:
                if not error.is_missing:
                    raise
                told.is_written = False  # events live for an hour
            else:
                return
        body = new_event(
            event,
            count=told.count,
            first=told.first,
            last=told.last,
            component=self._component,
            instance=self._instance,
        )
        try:
            await self._connection.send("POST", path, body, action="create events")
        except ApiError as error:
            if not error.is_conflict:
                raise
            if event.series:  # another replica told it before, and what it counted counts on
                await self._continue(told, f"{path}/{event.name}")
        told.is_written = True

    async def _continue(self, told: Told, path: str) -> None:
        """Go on with an event of a series that another replica, or this one before its restart, has begun."""
        try:
            body = await self._connection.send("GET", path, action="get events")
        except ApiError as error:
            if not error.is_missing:
                raise
            return
        told.count += count_of(body)
        patch = repeat_patch(told.event, count=told.count, last=told.last)
        await self._connection.send("PATCH", path, patch, action="patch events", content_type=_MERGE)


def _may_pass(error: ClusterError) -> bool:
    """Tell whether another try makes sense: no answer, or a server that is busy or broken."""
    return not isinstance(error, ApiError) or (
        error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
