"""Reports on the API: written by each process about itself, and by the leader about the cluster; read by commands."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import msgspec

from webhook.cluster.api.client import MERGE_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import decoded
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import ReplicaReport, Report

CHECK_SECONDS: Final = 2.0
"""Between two checks whether the state of the process changed: a change is published at the next one."""

REPEAT_SECONDS: Final = 10.0
"""An unchanged state is published again after so long, to show that the process runs."""

FORGET_SECONDS: Final = 300.0
"""An entry that was not renewed for so long is removed by the next writer: its process did not stop cleanly."""

_WITHDRAW_SECONDS: Final = 2.0
_log: Final = logging.getLogger("webhook.cluster.writes.reports")


async def write_report(connection: ApiConnection, name: str, patch: dict[str, Any]) -> Report:
    """Merge a patch into a report, which is created if it is missing. Raises ClusterError."""
    path = f"{reports.PATH}/{name}"
    encoded = msgspec.json.encode(patch)
    try:
        body = await connection.send("PATCH", path, encoded, action="patch reports", content_type=MERGE_PATCH)
    except ApiError as error:
        if not error.is_missing:
            raise
        body = await connection.send("POST", reports.PATH, reports.new_report(name, patch), action="create reports")
    return decoded(body, reports.decode, action="get reports")


async def read_report(connection: ApiConnection, name: str) -> Report:
    """Return a report. Raises ClusterError; an ApiError that `is_missing` if there is none."""
    body = await connection.send("GET", f"{reports.PATH}/{name}", action="get reports")
    return decoded(body, reports.decode, action="get reports")


class ReportWriter:
    """Writes one report; `problem` is why the last write failed, which is logged once."""

    def __init__(self, connection: ApiConnection, name: str) -> None:
        self.problem: str | None = None
        self._connection = connection
        self._name = name

    async def write(self, patch: dict[str, Any]) -> Report | None:
        """Merge a patch into the report, and return it; None if that failed."""
        try:
            report = await write_report(self._connection, self._name, patch)
        except ClusterError as error:
            if self.problem != str(error):
                self.problem = str(error)
                _log.warning("report %s not written: %s", self._name, error)
            return None
        self.problem = None
        return report


class ReplicaReporter:
    """Publishes the state of one process. Start `run` as a task; `problem` is why the last write failed."""

    def __init__(
        self,
        connection: ApiConnection,
        *,
        identity: str,
        describe: Callable[[str], ReplicaReport],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._writer = ReportWriter(connection, reports.REPLICAS)
        self._identity = identity
        self._describe = describe
        self._clock = clock or connection.unix_time
        self._expired: list[str] = []
        self._last: ReplicaReport | None = None
        self._last_at = float("-inf")

    @property
    def problem(self) -> str | None:
        """Why the last write failed."""
        return self._writer.problem

    async def run(self) -> NoReturn:
        """Publish every change, and the unchanged state every ten seconds, until cancelled; then remove the entry."""
        try:
            while True:
                await self.publish()
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            await self._withdraw()

    async def publish(self) -> None:
        """Publish the state if it changed or was published too long ago. A failure is logged once."""
        now = asyncio.get_running_loop().time()
        found = self._describe("")
        if found == self._last and now - self._last_at < REPEAT_SECONDS:
            return
        dated = self._describe(reports.written_at(self._clock()))
        report = await self._writer.write(reports.replica_patch(self._identity, dated, gone=self._expired))
        if report is None:
            return
        self._last, self._last_at = found, now
        self._expired = [name for name, each in report.replicas.items() if self._is_expired(name, each)]

    def _is_expired(self, name: str, report: ReplicaReport) -> bool:
        at = reports.read_at(report.at)
        return name != self._identity and (at is None or self._clock() - at > FORGET_SECONDS)

    async def _withdraw(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                await self._writer.write(reports.replica_patch(self._identity, None))
