"""The check of minimums of replicas: whether each process may read what states them, and what they come to."""

from collections.abc import Iterable
from typing import Final

from webhook.cli.doctor.findings import Check, Finding, ok, wrong
from webhook.cli.doctor.processes import Process
from webhook.kube.workloads.scalers import SCALER_API, SCALERS

_RIGHT: Final = (
    f"apply `fairgate manifests` or the chart again: they grant list and watch of {SCALERS} in "
    f"{SCALER_API.partition('/')[0]}; docs/doctor.md#the-checks"
)


def check_minimums(found: Iterable[Process]) -> list[Finding]:
    """Check that servers and evictors may list autoscalers; there is no result without a process.

    Workloads below their minimum, and minimums that count for nothing, are no problem of the installation.
    """
    processes = list(found)
    if not processes:
        return []
    blind = [
        f"{each.name} may not list {SCALERS}: of workloads that one scales, it knows no minimum"
        for each in processes
        if SCALERS in each.report.left_out
    ]
    told = next((each.report.minimums for each in processes if each.report.minimums), "no workload has a minimum")
    return wrong(Check.MINIMUMS, blind, _RIGHT) or ok(Check.MINIMUMS, told)
