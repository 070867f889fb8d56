"""Why it is not known which pods use their GPUs, by the report of the leading evictor."""

import time
from typing import Final

from webhook.cli.world_source import Source, default_kubeconfig
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.server.settings import LiveCluster

AGAIN_SECONDS: Final = 15.0
"""How long an answer is shown by --watch: credentials are loaded for each."""


class IdleProblem:
    """Reads that report now and then."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known = ""
        self._read_at = float("-inf")

    async def read(self, policy: Policy) -> str:
        """Return why; "" if it is known, where policy does not measure it, and where the report may not be read."""
        if policy.idle is None or not isinstance(self._source, LiveCluster):
            return ""
        if time.monotonic() - self._read_at > AGAIN_SECONDS:
            self._known, self._read_at = await _read(self._source), time.monotonic()
        return self._known


async def _read(source: LiveCluster) -> str:
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415
    from webhook.cluster.writes.reports import read_report  # noqa: PLC0415

    try:
        async with await connect(source.kubeconfig or default_kubeconfig()) as connection:
            report = await read_report(connection, reports.REPLICAS)
            now = connection.server_time or time.time()
    except ClusterError:
        return ""
    if not reports.evictor_leads(report, now=now):
        return "no evictor leads"
    return next((each.idle_problem for each in report.replicas.values() if each.leading and each.idle_problem), "")
