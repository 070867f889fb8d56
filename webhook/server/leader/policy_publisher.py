"""A task of the leader: publishes the policy in force as a Report that viewers may read."""

import asyncio
from collections.abc import Callable
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.reports import ReportWriter
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import PolicyReport
from webhook.observe.logs import Logs
from webhook.policy.published import published
from webhook.policy.source import Files
from webhook.policy.watch import InForce

CHECK_SECONDS: Final = 2.0
"""Between two checks whether another policy is in force."""

REPEAT_SECONDS: Final = 60.0
"""The same policy is written again after so long: the report may have been deleted."""


class PolicyPublisher:
    """Publishes the policy while `run` runs."""

    def __init__(self, connection: ApiConnection, in_force: Callable[[], InForce], logs: Logs) -> None:
        self.writer = ReportWriter(connection, reports.POLICY)
        self._in_force = in_force
        self._logs = logs
        self._written: PolicyReport | None = None
        self._written_at = float("-inf")

    async def run(self) -> None:
        """Keep the report current until cancelled."""
        self._written = None  # another leader may have written since
        while True:
            await self.publish()
            await asyncio.sleep(CHECK_SECONDS)

    async def publish(self) -> None:
        """Write the report if the policy changed or the last write was too long ago."""
        now = asyncio.get_running_loop().time()
        policy, files = self._in_force()
        written = self._written
        is_same = written is not None and (written.hash, written.enforce) == (policy.hash, policy.enforce.value)
        if is_same and now - self._written_at < REPEAT_SECONDS:
            return
        report = written if written is not None and is_same else await asyncio.to_thread(report_of, policy, files)
        if await self.writer.write(reports.report_patch(reports.POLICY, report)) is None:
            return
        self._written_at = now
        if not is_same:
            self._logs.event.info("policy published", policy=policy.hash, bytes=len(report.documents))
        self._written = report


def report_of(policy: Policy, files: Files) -> PolicyReport:
    """Return the report of a policy; a policy that is too large is omitted, and the report says so."""
    documents, omitted = published(files), ""
    if (size := len(documents.encode())) > reports.MAX_POLICY_BYTES:
        documents = ""
        omitted = f"the policy has {size:,} bytes, and at most {reports.MAX_POLICY_BYTES:,} are published"
    return PolicyReport(policy.hash, policy.enforce.value, documents, omitted)
