"""Checks of kinds that are read where that is allowed, minimums of replicas among them: whether each process may."""

from collections.abc import Iterable
from typing import Final

from webhook.cli.doctor.findings import Check, Finding, ok, wrong
from webhook.cli.doctor.processes import Process
from webhook.kube.nodes.volumes import VOLUMES
from webhook.kube.workloads.scalers import SCALER_API, SCALERS

_RIGHT: Final = (
    f"apply `fairgate manifests` or the chart again: they grant list and watch of {SCALERS} in "
    f"{SCALER_API.partition('/')[0]}; docs/troubleshoot.md#the-checks"
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


_ROOM: Final = {
    VOLUMES: "a pod may be sent to a zone where its volume is not",
    "devicetaintrules": "devices that these close count as free",
}
"""Kinds by which room is counted, and what is wrong without them."""


def check_room_rights(found: Iterable[Process]) -> list[Finding]:
    """Check that servers and evictors may list what says where there is room; there is no result where they may."""
    blind = [
        f"{each.name} may not list {kind}: {what}"
        for each in found
        for kind, what in _ROOM.items()
        if kind in each.report.left_out
    ]
    remedy = "apply `fairgate manifests` or the chart again: they grant list and watch of these; docs/rights.md"
    return wrong(Check.ROOM, blind, remedy)
