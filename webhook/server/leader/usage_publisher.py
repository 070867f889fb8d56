"""A task of the leader: publishes what teams used in the last days, for people who may not read the history itself."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.reports import ReportWriter
from webhook.history import wire
from webhook.history.recorder import UsageRecorder
from webhook.history.schema import HistoryError
from webhook.history.summary import By, merged, observed_hours, usage_by, whole_intervals
from webhook.history.usage_row import Recording, UsageRow
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import TeamHours, UsagePeriod, UsageReport

DAYS: Final = (1, 7, 30)
"""The periods that are published."""

PAUSE_SECONDS: Final = 600.0
"""Between two writes."""

_FIRST_SECONDS: Final = 5.0
_DAY: Final = 86_400


class UsagePublisher:
    """Publishes the usage while `run` runs; nothing where no history is recorded."""

    def __init__(self, connection: ApiConnection, recorder: UsageRecorder) -> None:
        self.writer = ReportWriter(connection, reports.USAGE)
        self._recorder = recorder

    async def run(self) -> None:
        """Keep the report current until cancelled."""
        await asyncio.sleep(_FIRST_SECONDS)
        while True:
            await self.publish(time.time())
            await asyncio.sleep(PAUSE_SECONDS)

    async def publish(self, now: float) -> None:
        """Write the report as of now, in Unix seconds."""
        try:
            days = {str(number): await self._period(number, now) for number in DAYS}
        except HistoryError:
            return
        report = UsageReport(reports.written_at(now), days)
        await self.writer.write(reports.report_patch(reports.USAGE, report))

    async def _period(self, days: int, now: float) -> UsagePeriod:
        since, until = whole_intervals(now - days * _DAY, now)
        rows = await self._recorder.read(since, until, step_seconds=until - since, most=wire.MAX_ROWS)
        return await asyncio.to_thread(period_of, rows, since, until)


def period_of(rows: Iterable[UsageRow], since: int, until: int) -> UsagePeriod:
    """Return the sums of teams from recorded rows."""
    found = merged([Recording("the leader", tuple(rows))])
    teams = [TeamHours(**msgspec.structs.asdict(each.rounded())) for each in usage_by(found, By.TEAM)]
    return UsagePeriod(since, until, round(observed_hours(found), 2), teams)
