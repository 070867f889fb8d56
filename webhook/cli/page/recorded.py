"""The last day of each team for the page: from history files, or from the servers of the cluster."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from webhook.cli.usage.live import fetch_live
from webhook.cluster.api.errors import ClusterError
from webhook.history.reader import read_usage
from webhook.history.schema import HistoryError
from webhook.history.summary import UsageOverTime, merged, team_lines
from webhook.history.usage_row import Recording, interval_of
from webhook.page.views.usage_history import DAY_SECONDS, Point

STEP_SECONDS: Final = 900
"""A point of the line is the average of a quarter of an hour."""

AGAIN_SECONDS: Final = 300
"""Between two readings: an interval of the record is as long."""

Read = Callable[[int, int], Awaitable[list[Recording]]]
"""Reads the records between two times. Raises HistoryError, ClusterError."""


class RecordedUsage:
    """Keeps the last day of each team. Start `run` as a task."""

    def __init__(self, read: Read, *, clock: Callable[[], float] = time.time) -> None:
        self.why_not = "The use of the last 24 hours is being read."
        self._read = read
        self._clock = clock
        self._days: Mapping[str, Sequence[Point]] = {}

    def last_day(self, now: int) -> Mapping[str, Sequence[Point]]:  # noqa: ARG002 - five minutes old at most
        """Return the points of each team, as they were read last."""
        return self._days

    async def run(self) -> NoReturn:
        """Read again and again until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(AGAIN_SECONDS)

    async def refresh(self) -> None:
        """Read once; what was read before stays while it cannot be read."""
        until = int(self._clock())
        since = interval_of(until - DAY_SECONDS)
        try:
            rows = merged(await self._read(since, until))
        except (HistoryError, ClusterError) as error:
            self.why_not = f"The use of the last 24 hours is not known: {error}"
            return
        lines = team_lines(rows, since=since, until=until, step_seconds=STEP_SECONDS)
        self._days = {team: _points(line, since) for team, line in lines.items()}
        self.why_not = ""


def of_files(files: Sequence[Path]) -> Read:
    """Return what reads history files, those of several replicas together."""

    async def read(since: int, until: int) -> list[Recording]:
        return await asyncio.to_thread(lambda: [read_usage(file, since, until) for file in files])

    return read


def of_cluster(kubeconfig: Path | None) -> Read:
    """Return what asks the servers of a cluster."""

    async def read(since: int, until: int) -> list[Recording]:
        return await fetch_live(kubeconfig, since, until)

    return read


def _points(line: UsageOverTime, since: int) -> list[Point]:
    pairs = zip(line.guaranteed, line.preemptible, strict=True)
    return [
        Point(since + number * STEP_SECONDS, (guaranteed or 0.0) + (preemptible or 0.0), preemptible or 0.0)
        for number, (guaranteed, preemptible) in enumerate(pairs)
        if guaranteed is not None or preemptible is not None
    ]
