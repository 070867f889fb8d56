"""Carries `fairgate doctor` out: reads what may be read, lets every check judge it, writes what was found."""

import asyncio
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec
from rich.console import Console

from webhook.cli.doctor import processes, registration
from webhook.cli.doctor.findings import NOT_SEEN, Check, Finding, State, exit_status, lacking
from webhook.cli.doctor.table import to_table
from webhook.cli.options import Layout, columns, is_colored
from webhook.cli.serialization import to_json, to_yaml
from webhook.cluster.api.client import connect
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.namespace import own_namespace
from webhook.cluster.reads.installation import (
    InstallationState,
    ReadForbidden,
    ReadResult,
    ReadValue,
    is_exempt,
    probe,
    read_installation,
)
from webhook.core.model.policy import Enforcement, Policy
from webhook.kube.ledger.reports import Report
from webhook.kube.objects import keys
from webhook.kube.registration.installation import Probe
from webhook.observe.process import Component
from webhook.policy.load import load, overridden, parse
from webhook.policy.problems import PolicyError, PolicyUnreadable

_OF_REPORTS: Final = (Check.SERVER, Check.LEADER, Check.EVICTOR)


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for; `namespace` is where the dry run is, None for the kubeconfig's own."""

    policy: Path | None
    kubeconfig: Path | None
    namespace: str | None
    skip: frozenset[Check]
    layout: Layout


class FindingReport(msgspec.Struct):
    """One thing that a check found."""

    check: Check
    state: State
    message: str
    remedy: Annotated[str, msgspec.Meta(description="what to do; empty where nothing is to be done")]


class DoctorReport(msgspec.Struct):
    """What `fairgate doctor` found."""

    healthy: Annotated[bool | None, msgspec.Meta(description="null: nothing is wrong, and not all could be looked at")]
    findings: list[FindingReport]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read: of the dry run None where it was not made."""

    evidence: InstallationState
    policy: Policy | None
    probe: Probe | ReadForbidden | None
    namespace: str
    is_exempt: bool


def run(order: Order) -> int:
    """Look at the installation, and give the exit status."""
    shown = Console(stderr=True)
    try:
        with shown.status("Looking") if shown.is_terminal else nullcontext():
            seen = asyncio.run(_look(order))
    except (ClusterError, PolicyError, PolicyUnreadable) as error:
        click.echo(f"fairgate: could not look: {error}", err=True)
        return NOT_SEEN
    findings = [each for each in judge(seen) if each.check not in order.skip]
    click.echo(_written(findings, order), nl=False)
    return exit_status(findings)


async def _look(order: Order) -> Seen:
    given = load(order.policy) if order.policy is not None else None
    namespace = order.namespace or await own_namespace(order.kubeconfig)
    async with await connect(order.kubeconfig) as connection:
        evidence = await read_installation(connection)
        policy = given or _published(evidence.policy)
        if policy is None or Check.REACHABLE in order.skip:
            return Seen(evidence, policy, None, namespace, is_exempt=False)
        found = await probe(connection, policy, namespace=namespace)
        return Seen(evidence, policy, found, namespace, is_exempt=await is_exempt(connection, namespace))


def _published(part: ReadResult[Report]) -> Policy | None:
    """Read the policy in force; None where it is not published, or this version cannot read it."""
    report = part.value.policy if isinstance(part, ReadValue) and part.value is not None else None
    if report is None or not report.documents:
        return None
    try:
        policy = parse({"the published policy": report.documents.encode()}, origin="the published policy")
    except PolicyError:
        return None
    return overridden(policy, enforce=Enforcement(report.enforce) if report.enforce in set(Enforcement) else None)


def judge(seen: Seen) -> list[Finding]:
    """Let every check look at what was read."""
    evidence, policy = seen.evidence, seen.policy
    now = evidence.now if evidence.now is not None else time.time()
    findings: list[Finding] = []
    servers: tuple[processes.Process, ...] = ()
    everyone: tuple[processes.Process, ...] = ()
    if isinstance(evidence.replicas, ReadForbidden):
        for check in _OF_REPORTS:
            findings += lacking(check, evidence.replicas.right, role=keys.VIEWER)
    else:
        report = evidence.replicas.value or Report()
        found = processes.processes_of(report, Component.SERVER, now=now)
        evictors = processes.processes_of(report, Component.EVICTOR, now=now)
        servers, everyone = found.alive, (*found.alive, *evictors.alive)
        findings += processes.check_server(found, evidence.deployments)
        findings += processes.check_leader(found)
        findings += processes.check_evictor(evictors, policy)
    findings += processes.check_policy(everyone, evidence.policy)
    findings += registration.check_certificates(servers, evidence.configurations, now=now)
    findings += registration.check_webhooks(evidence.configurations, policy)
    findings += registration.check_reachable(seen.probe, policy, namespace=seen.namespace, is_exempt=seen.is_exempt)
    findings += registration.check_guards(evidence.guards, policy)
    findings += processes.check_ledger(everyone, evidence.ledgers, policy)
    return findings


def _written(findings: list[Finding], order: Order) -> str:
    match order.layout:
        case Layout.JSON:
            return to_json(report_of(findings))
        case Layout.YAML:
            return to_yaml(report_of(findings))
        case Layout.TABLE | Layout.WIDE:
            return to_table(findings, width=columns(), is_colored=is_colored())


def report_of(findings: list[Finding]) -> DoctorReport:
    """Say the findings as data."""
    healthy = {0: True, 1: False}.get(exit_status(findings))
    told = [FindingReport(each.check, each.state, each.message, each.remedy) for each in findings]
    return DoctorReport(healthy, told)
