"""The check of autoscalers: which were found, and whether policy agrees with who owns the nodes of each pool."""

from collections.abc import Iterable

from webhook.cli.doctor.findings import Check, Finding, ok, unknown, wrong
from webhook.cli.doctor.processes import Process

_RIGHT = "grant the right to get that ConfigMap, or set `autoscaled` in each pool; docs/rights.md#servers-and-evictors"


def check_autoscalers(found: Iterable[Process]) -> list[Finding]:
    """Check what the leader found of autoscalers; without a leader there is no result."""
    findings: list[Finding] = []
    for report in (each.report for each in found if each.report.leading and each.report.autoscaling):
        problems = wrong(Check.AUTOSCALERS, report.autoscaling_problems, "docs/autoscalers.md#which-pools-grow")
        if report.autoscaling_unsure:
            problems += unknown(Check.AUTOSCALERS, f"not all could be looked for: {report.autoscaling_unsure}", _RIGHT)
        findings += problems or ok(Check.AUTOSCALERS, report.autoscaling)
    return findings
