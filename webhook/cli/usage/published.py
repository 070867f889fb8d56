"""The usage that the leader published, for people who may not read the history itself."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from webhook.cli.usage.report import UsageReport
from webhook.cli.usage.times import time_text
from webhook.cli.world_source import default_kubeconfig
from webhook.cluster.api.client import connect
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.reports import read_report
from webhook.history.schema import HistoryError
from webhook.history.summary import By, Ratios, UsageSum
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import UsagePeriod

_DAY: Final = 86_400


def read_published(kubeconfig: Path | None, *, by: By, seconds: float) -> UsageReport:
    """Return the sums of teams of a period that ends now. Raises HistoryError if it is not published."""
    days = seconds / _DAY
    try:
        found = asyncio.run(_read(kubeconfig or default_kubeconfig()))
    except ClusterError as error:
        raise HistoryError(f"nor what the leader published: {error}") from error
    period = found.get(f"{days:g}")
    if by is not By.TEAM or period is None:
        known = ", ".join(f"--since {number}d" for number in found)
        raise HistoryError(f"published are the sums of teams alone: {known}" if found else "and no usage is published")
    teams = [UsageSum(**msgspec.structs.asdict(each)) for each in period.teams]
    total = UsageSum("total")
    for each in teams:
        _add(total, each)
    return UsageReport(
        since=time_text(period.since),
        until=time_text(period.until),
        by=by.value,
        hours=round((period.until - period.since) / 3600, 2),
        observed_hours=period.observed_hours,
        usage=teams,
        total=total.rounded(),
        ratios=Ratios(),
    )


async def _read(kubeconfig: Path | None) -> dict[str, UsagePeriod]:
    async with await connect(kubeconfig) as connection:
        usage = (await read_report(connection, reports.USAGE)).usage
        return {} if usage is None else usage.days


def _add(total: UsageSum, each: UsageSum) -> None:
    """Add the amounts of a team; the total's `idle` would be free GPUs, which are not published."""
    for name, amount in msgspec.structs.asdict(each).items():
        if name not in {"name", "idle"} and amount is not None:
            setattr(total, name, (getattr(total, name) or 0) + amount)
