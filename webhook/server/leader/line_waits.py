"""A task of the leader: publishes how long the last pods of each team and size waited in line.

What earlier leaders published goes on: it is read first, and what this one has seen meanwhile comes after it.
"""

import asyncio
from typing import Any, Final, NoReturn

from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes.reports import ReportWriter, read_report
from webhook.core.explain.line_rows import EarlierWaits
from webhook.kube.ledger import reports
from webhook.server.leader.registration_loop import LeaderContext

PUBLISH_SECONDS: Final = 60.0
"""Between two writes of the report."""


class WaitPublisher:
    """Publishes `waits` while `run` runs; the queue notes in them the pods that this leader releases."""

    def __init__(self, context: LeaderContext, waits: EarlierWaits) -> None:
        self.writer = ReportWriter(context.connection, reports.STARTS)
        self._connection = context.connection
        self._waits = waits
        self._written: dict[str, Any] | None = None

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        self._waits.clear()
        self._written = None
        while True:
            await self.publish()
            await asyncio.sleep(PUBLISH_SECONDS)

    async def publish(self) -> None:
        """Write the report if it changed; nothing before it could be read once in this term."""
        if self._written is None:
            self._written = await self._take_over()
        patch = reports.starts_patch(self._waits)
        if self._written not in (None, patch) and await self.writer.write(patch) is not None:
            self._written = patch

    async def _take_over(self) -> dict[str, Any] | None:
        """Put what is published before what was noted meanwhile, and return it; None if it cannot be read."""
        try:
            report = await read_report(self._connection, reports.STARTS)
        except ApiError as error:
            if not error.is_missing:
                return None
            report = None
        except ClusterError:
            return None
        noted = list(self._waits)
        self._waits.clear()
        self._waits.add(reports.waits_of(report))
        published = reports.starts_patch(self._waits)
        self._waits.add(noted)
        return published
