"""What the processes of a live cluster report: messages that do not arrive, and that the use of GPUs is not known."""

import time
from typing import Final, NamedTuple

from webhook.cli.world_source import Source
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.server.settings import LiveCluster

AGAIN_SECONDS: Final = 15.0
"""How long an answer is shown by --watch: credentials are loaded for each."""


class Reported(NamedTuple):
    """Why it is not known which pods use their GPUs, "" if it is; and targets of messages that are not reached."""

    idle_unknown: str = ""
    unreached: tuple[str, ...] = ()


class ProcessReports:
    """Reads the reports now and then."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known = Reported()
        self._read_at = float("-inf")

    async def read(self, policy: Policy) -> Reported:
        """Return what is reported; nothing that policy has no rules for, or where the reports may not be read."""
        if not isinstance(self._source, LiveCluster) or not (policy.idle or policy.notify.targets):
            return Reported()
        if time.monotonic() - self._read_at > AGAIN_SECONDS:
            self._known, self._read_at = await _read(self._source, policy), time.monotonic()
        return self._known


async def _read(source: LiveCluster, policy: Policy) -> Reported:
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415
    from webhook.cluster.writes.reports import read_report  # noqa: PLC0415

    try:
        async with await connect(source.kubeconfig) as connection:
            report = await read_report(connection, reports.REPLICAS)
            now = connection.server_time or time.time()
    except ClusterError:
        return Reported()
    texts = dict.fromkeys(text for each in report.replicas.values() for text in each.notify)
    return Reported(
        "" if policy.idle is None else _idle_unknown(report, now), tuple(texts) if policy.notify.targets else ()
    )


def _idle_unknown(report: reports.Report, now: float) -> str:
    if not reports.evictor_leads(report, now=now):
        return "no evictor leads"
    return next((each.idle_problem for each in report.replicas.values() if each.leading and each.idle_problem), "")
