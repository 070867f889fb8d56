"""A pod that waits in the queue, as data and as a row of a table: `fairgate queue` and the page show the same columns.

A column is a field of `WaitingReport` and a line of `COLUMNS`; data has the field, each table the line.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from webhook.cli.explain.reclaim import fetch_evictor
from webhook.cli.world_source import Source
from webhook.cluster.api.client import ApiConnection, ClusterError, connect
from webhook.cluster.writes.reports import read_report
from webhook.core.explain.line_rows import EarlierWaits, QueueRow
from webhook.core.model.amounts import column_gpus, format_gpus, parse_amount, printable, shortened, span
from webhook.core.model.reasons import facts_json
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import Report
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.kube.pod.pods import unix_seconds
from webhook.server.settings import LiveCluster

_LONGEST: Final = 200
_MINUTE: Final = 60


class HolderReport(msgspec.Struct):
    """A holder of GPUs: a controller of pods, a bare pod, or a team of a department."""

    name: str
    gpus: Annotated[str, msgspec.Meta(description="GPUs, as in 2, 0.5 or 3/7")]


class EarlierReport(msgspec.Struct, rename="camel"):
    """How long the last pods of the same team and number of GPUs waited in the queue, from creation to start."""

    starts: Annotated[int, msgspec.Meta(description="how many, 20 at most")]
    shortest_seconds: int
    longest_seconds: int


class WaitingReport(msgspec.Struct, rename="camel"):
    """A pod that is queued."""

    namespace: str
    name: str
    team: str
    user: Annotated[str | None, msgspec.Meta(description="who created it; null where that is not known")]
    gpus: Annotated[str, msgspec.Meta(description="GPUs, as in 2, 0.5 or 3/7")]
    since: Annotated[str | None, msgspec.Meta(description="when it was created")]
    place: Annotated[
        int | None,
        msgspec.Meta(description="among all that wait, from 1; null where another controller's gate holds it"),
    ]
    place_in_team: Annotated[int | None, msgspec.Meta(description="among those of its team, from 1")]
    code: Annotated[
        str,
        msgspec.Meta(
            description="WaitsForLimit, WaitsForBorrowers, WaitsForRoom, WaitsInLine, WaitsForGang or WaitsForGate"
        ),
    ]
    cause: Annotated[str, msgspec.Meta(description="what it waits for, in numbers")]
    facts: Annotated[
        dict[str, Any],
        msgspec.Meta(description="what the cause says, by name; amounts of GPUs are texts, as in 2, 0.5 or 3/7"),
    ]
    holders: Annotated[list[HolderReport], msgspec.Meta(description="who holds most of what it waits for")]
    gates: Annotated[list[str], msgspec.Meta(description="scheduling gates of other controllers")]
    earlier_starts: Annotated[
        EarlierReport | None, msgspec.Meta(description="null where no start of the team and size is known")
    ] = None
    stated_run_time: Annotated[
        int | None,
        msgspec.Meta(description="in seconds, by annotation fairgate.dev/run-time; null without"),
    ] = None
    minimum: Annotated[
        int | None, msgspec.Meta(description="replicas that its workload is to keep; null where nothing says so")
    ] = None
    minimum_ready: Annotated[int | None, msgspec.Meta(description="its workload's pods that are ready")] = None
    charged: Annotated[
        bool, msgspec.Meta(description="its turn has come: it is charged, and stays queued until its GPUs are free")
    ] = False


def waiting_report(row: QueueRow) -> WaitingReport:
    """Return a waiting pod as data."""
    waiting = row.waiting
    return WaitingReport(
        namespace=waiting.pod.namespace,
        name=waiting.pod.name,
        team=waiting.team,
        user=waiting.user,
        gpus=format_gpus(row.gpus),
        since=rfc3339(waiting.created) if waiting.created else None,
        place=None if row.place is None else row.place.overall,
        place_in_team=None if row.place is None else row.place.of_team,
        code=row.code,
        cause=row.cause,
        facts=facts_json(row.reason.statement),
        holders=[HolderReport(each.name, format_gpus(each.gpus)) for each in row.holders],
        gates=list(row.gates),
        earlier_starts=None if row.earlier is None else EarlierReport(*row.earlier),
        stated_run_time=waiting.pod.run_time.stated or None,
        minimum=None if row.replicas is None else row.replicas.minimum,
        minimum_ready=None if row.replicas is None else row.replicas.ready,
        charged=row.is_charged,
    )


class Column(NamedTuple):
    """A column of the queue: its heading, the text of its cells at a time (in seconds of Unix time), and its looks."""

    heading: str
    cell: Callable[[WaitingReport, int], str]
    is_number: bool = False
    is_pod: bool = False
    is_cause: bool = False


def holders_text(report: WaitingReport) -> str:
    """Return who holds what a pod waits for."""
    return ", ".join(f"{short(each.name)} {column_gpus(parse_amount(each.gpus))}" for each in report.holders)


def earlier_cell(report: WaitingReport) -> str:
    """Return how long the last pods of the same team and size waited, in a few words; "" where none is known."""
    return "" if (earlier := report.earlier_starts) is None else f"last {earlier.starts}: {_waits_between(earlier)}"


def earlier_text(report: WaitingReport) -> str:
    """Return how long the last pods of the same team and size waited; "" where no start of such a pod is known."""
    if (earlier := report.earlier_starts) is None:
        return ""
    pods = "pod" if earlier.starts == 1 else f"{earlier.starts} pods"
    gpus = column_gpus(parse_amount(report.gpus))
    size = "1 GPU" if gpus == "1" else f"{gpus} GPUs"
    return f"the last {pods} of {size} in team {report.team} waited {_waits_between(earlier)}"


def _waits_between(earlier: EarlierReport) -> str:
    shortest, longest = _wait(earlier.shortest_seconds), _wait(earlier.longest_seconds)
    return longest if shortest == longest else f"{shortest} to {longest}"


def _wait(seconds: int) -> str:
    return "<1m" if seconds < _MINUTE else span(seconds)


def short(text: str) -> str:
    """Return a text that a user or another controller chose, on one line and of a bounded length."""
    return shortened(printable(text), _LONGEST)


def _waits_for(report: WaitingReport) -> str:
    cause = short(report.cause)
    if report.minimum is None:
        return cause
    are = "is" if report.minimum_ready == 1 else "are"
    return f"{cause}; of its workload's minimum of {report.minimum}, {report.minimum_ready} {are} ready"


def _place(place: int | None) -> str:
    return "-" if place is None else f"{place:,}"


def _waits(report: WaitingReport, now: int) -> str:
    return "-" if report.since is None else span(max(0, now - unix_seconds(report.since)))


COLUMNS: Final = (
    Column("place", lambda row, _: "charged" if row.charged else _place(row.place), is_number=True),
    Column("in team", lambda row, _: _place(row.place_in_team), is_number=True),
    Column("pod", lambda row, _: f"{row.namespace}/{row.name}", is_pod=True),
    Column("team", lambda row, _: row.team),
    Column("user", lambda row, _: short(row.user or "-")),
    Column("GPUs", lambda row, _: column_gpus(parse_amount(row.gpus)), is_number=True),
    Column("waits", _waits, is_number=True),
    Column("waits for", lambda row, _: _waits_for(row), is_cause=True),
    Column("held by", lambda row, _: holders_text(row) or "-"),
    Column("earlier waits", lambda row, _: earlier_cell(row) or "-"),
)


# What a cluster says of its line besides the world: how long earlier pods waited, and whether an evictor leads.


_T = TypeVar("_T")

_NONE_LEADS: Final = "no evictor leads"
_NOT_KNOWN: Final = "no evictor is known to lead"


def published_waits(source: Source) -> EarlierWaits:
    """Return how long earlier pods waited in the queue; none for a file, and where that may not be read."""
    if not isinstance(source, LiveCluster):
        return EarlierWaits()
    return EarlierWaits(reports.waits_of(asyncio.run(_connected(source.kubeconfig, _read_waits, None))))


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


async def _read_waits(connection: ApiConnection) -> Report | None:
    return await read_report(connection, reports.STARTS)


async def _no_evictor(connection: ApiConnection) -> str:
    evictor = await fetch_evictor(connection, OWN_NAMESPACE)
    if evictor.leader is not None:
        return "" if evictor.leader else _NONE_LEADS
    found = await read_report(connection, reports.REPLICAS)
    return "" if reports.evictor_leads(found, now=connection.server_time) else _NONE_LEADS
