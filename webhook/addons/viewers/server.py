"""A task of the leader: publishes the cluster without names, for people who may not list nodes and others' pods."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from webhook.addons.viewers.nameless import Anonymizer
from webhook.addons.viewers.room_report import room_report
from webhook.cluster.api.client import ApiConnection
from webhook.cluster.watch.event_stream import DEFAULT_PACE, Pace, TimeSlice
from webhook.cluster.writes.reports import ReportWriter
from webhook.core.world.world import World
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import RoomReport
from webhook.server.addons import ServedCluster, ServerAddon, ServerParts, Task

ROOM_PAUSE_SECONDS: Final = 10.0
"""Least time between two looks at the world: a change is published after so long, however many there are."""

PAUSES: Final = 50
"""For so many times as long as the last look took there is no other: in a large cluster it takes 2 % of one core."""

STALE_SECONDS: Final = 1.0
"""Until the world is looked at again that was not current, as it is when a leader begins."""

REPEAT_SECONDS: Final = 60.0
"""The same is written again after so long, to show that it is current."""


class RoomPublisher:
    """Publishes the room while `run` runs; nothing while the world is not current (`why_stale`)."""

    def __init__(
        self,
        connection: ApiConnection,
        world: World,
        *,
        why_stale: Callable[[], str | None],
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self.writer = ReportWriter(connection, reports.ROOM)
        self._unix_time = connection.unix_time
        self._world = world
        self._why_stale = why_stale
        self._pace = pace
        self._written: RoomReport | None = None
        self._written_at = float("-inf")

    async def run(self) -> None:
        """Keep the report current until cancelled."""
        self._written = None  # another leader may have written since
        while True:
            if self._is_current:
                begun = time.process_time()
                await self.publish()
                await asyncio.sleep(max(ROOM_PAUSE_SECONDS, PAUSES * (time.process_time() - begun)))
            else:
                await asyncio.sleep(STALE_SECONDS)

    async def publish(self) -> None:
        """Write the report if the room changed, or the last write was too long ago."""
        if not self._is_current:
            return
        now = asyncio.get_running_loop().time()
        report = await self._look(reports.written_at(self._unix_time()))
        written = self._written
        is_same = written is not None and msgspec.structs.replace(written, at=report.at) == report
        if is_same and now - self._written_at < REPEAT_SECONDS:
            return
        if await self.writer.write(reports.report_patch(reports.ROOM, report)) is not None:
            self._written, self._written_at = report, now

    @property
    def _is_current(self) -> bool:
        return self._why_stale() is None and self._world.knows_all_namespaces

    async def _look(self, at: str) -> RoomReport:
        """Return the report of the world as it is, made in slices of time; packing it waits for no one."""
        anonymizer, time_slice = Anonymizer(self._world), TimeSlice(self._pace)
        for _ in anonymizer.steps():
            if time_slice.is_spent:
                await time_slice.pause()
        return await asyncio.to_thread(lambda: room_report(anonymizer.result(), at=at))


class Viewers(ServerAddon):
    """The publisher in a server."""

    def __init__(self, _parts: ServerParts) -> None:
        self._tasks: dict[str, Task] = {}

    def connected(self, cluster: ServedCluster) -> None:
        """Make the publisher."""
        self._tasks["room"] = RoomPublisher(cluster.connection, cluster.world, why_stale=cluster.why_stale).run

    def leading(self) -> Mapping[str, Task]:
        """Return the publisher."""
        return self._tasks
