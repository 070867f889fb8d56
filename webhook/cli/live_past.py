"""What likely starts are made of in a live cluster: pods that ended, scores, and whether an evictor leads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webhook.cli.explain.reclaim import Evictor, fetch_evictor
from webhook.cli.live_cluster import read_ended
from webhook.cluster.api.client import ApiConnection, ClusterError, connect
from webhook.cluster.writes.reports import read_report
from webhook.core.explain.line_places import RangeScores
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import Report
from webhook.kube.objects.keys import OWN_NAMESPACE

_NONE_LEADS = "no evictor leads"
_NOT_KNOWN = "no evictor is known to lead"


@dataclass(frozen=True, slots=True)
class LivePast:
    """Pods that ended, scores of earlier ranges, and why nothing is taken back from borrowing pods, "" where it is."""

    ended: Sequence[Mapping[str, Any]] = ()
    scores: RangeScores = field(default_factory=RangeScores)
    no_evictor: str = _NOT_KNOWN


async def read_past(kubeconfig: Path | None, namespaces: Sequence[str], evictor: Evictor | None = None) -> LivePast:
    """Read what may be read; `evictor` is what is known of it already."""
    ended = await read_ended(kubeconfig, namespaces)
    try:
        async with await connect(kubeconfig) as connection:
            starts = await _report(connection, reports.STARTS)
            return LivePast(ended, reports.scores_of(starts), await _why_no_evictor(connection, evictor))
    except ClusterError:
        return LivePast(ended)


async def _why_no_evictor(connection: ApiConnection, evictor: Evictor | None) -> str:
    """Return why nothing is taken back: by the evictor's Lease, or, where that may not be read, by its report."""
    if evictor is None or evictor.leader is None:
        evictor = await fetch_evictor(connection, OWN_NAMESPACE)
    if evictor.leader is not None:
        return "" if evictor.leader else _NONE_LEADS
    found = await _report(connection, reports.REPLICAS)
    if found is None:
        return _NOT_KNOWN
    return "" if reports.evictor_leads(found, now=connection.server_time) else _NONE_LEADS


async def _report(connection: ApiConnection, name: str) -> Report | None:
    try:
        return await read_report(connection, name)
    except ClusterError:
        return None
