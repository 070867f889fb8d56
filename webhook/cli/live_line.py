"""What a cluster says of its line besides the world: how long earlier pods waited, and whether an evictor leads."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from webhook.cli.explain.reclaim import fetch_evictor
from webhook.cli.world_source import Source
from webhook.cluster.api.client import ApiConnection, ClusterError, connect
from webhook.cluster.writes.reports import read_report
from webhook.core.explain.line_rows import EarlierWaits
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import Report
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.server.settings import LiveCluster

_T = TypeVar("_T")

_NONE_LEADS: Final = "no evictor leads"
_NOT_KNOWN: Final = "no evictor is known to lead"


def published_waits(source: Source) -> EarlierWaits:
    """Return how long earlier pods waited in line; none for a file, and where that may not be read."""
    if not isinstance(source, LiveCluster):
        return EarlierWaits()
    return EarlierWaits(reports.waits_of(asyncio.run(_connected(source.kubeconfig, _waits, None))))


def why_no_evictor(source: Source) -> str:
    """Return why nothing is taken back: by the evictor's Lease, or, where that may not be read, by its report.

    "" where an evictor leads, and for a file.
    """
    if not isinstance(source, LiveCluster):
        return ""
    return asyncio.run(_connected(source.kubeconfig, _no_evictor, _NOT_KNOWN))


async def _connected(kubeconfig: Path | None, read: Callable[[ApiConnection], Awaitable[_T]], otherwise: _T) -> _T:
    try:
        async with await connect(kubeconfig) as connection:
            return await read(connection)
    except ClusterError:
        return otherwise


async def _waits(connection: ApiConnection) -> Report | None:
    return await read_report(connection, reports.STARTS)


async def _no_evictor(connection: ApiConnection) -> str:
    evictor = await fetch_evictor(connection, OWN_NAMESPACE)
    if evictor.leader is not None:
        return "" if evictor.leader else _NONE_LEADS
    found = await read_report(connection, reports.REPLICAS)
    return "" if reports.evictor_leads(found, now=connection.server_time) else _NONE_LEADS
