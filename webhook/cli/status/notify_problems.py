"""Why messages to people do not reach their targets, as the processes of a live cluster report it."""

import asyncio

from webhook.cluster.api.client import connect
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.reports import read_report
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.server.settings import FileWorld, LiveCluster


def notify_problems(source: FileWorld | LiveCluster, policy: Policy) -> list[str]:
    """Return each problem once; none where policy has no targets, or the reports may not be read."""
    if isinstance(source, FileWorld) or not policy.notify.targets:
        return []
    return asyncio.run(_read(source))


async def _read(source: LiveCluster) -> list[str]:
    try:
        async with await connect(source.kubeconfig) as connection:
            found = await read_report(connection, reports.REPLICAS)
    except ClusterError:
        return []
    return list(dict.fromkeys(text for each in found.replicas.values() for text in each.notify))
