"""Runs `fairgate doctor`: the checks in order, and their table.

Findings as a table for terminals: a line for each, with the remedy below.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import click
import msgspec
from rich.text import Text

from webhook.cli.addons import unread
from webhook.cli.doctor import checks, registration
from webhook.cli.doctor.checks import INCOMPLETE, Check, Finding, State, exit_status, missing_right, ok
from webhook.cli.doctor.command import Options
from webhook.cli.grid import Grid, prose
from webhook.cli.live_cluster import published_policy
from webhook.cli.manifests import read
from webhook.cli.options import columns, is_colored
from webhook.cli.output import to_data
from webhook.cli.screen import Screen, progress
from webhook.cli.world_source import default_kubeconfig
from webhook.cluster.api.client import ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.reads.installation import (
    InstallationState,
    ReadForbidden,
    ReadResult,
    ReadValue,
    is_exempt,
    probe,
    read_installation,
    read_static_registration,
)
from webhook.core.model.amounts import plural
from webhook.core.model.policy import Policy
from webhook.files import InputError
from webhook.kube.ledger.reports import Report
from webhook.kube.objects import keys
from webhook.kube.registration.inventory import Probe, probe_resource
from webhook.kube.registration.static_files import NOT_STATIC, StaticRegistration
from webhook.observe.processes import Component
from webhook.policy.watch import load

_STYLES: Final = {State.OK: "green", State.WRONG: "bold red", State.UNKNOWN: "magenta", State.SKIPPED: "dim"}


def to_table(findings: Iterable[Finding], *, width: int, is_colored: bool) -> str:
    """Return the findings as a table of this width."""
    found = list(findings)
    screen = Screen(width=width, is_colored=is_colored)
    table = Grid("check", "state", prose("found"))
    before = None
    for each in found:
        name = "" if each.check is before else each.check.value
        before = each.check
        message = Text(each.message)
        if each.remedy:
            message.append(f"\n-> {each.remedy}", style="cyan")
        table.add_row(Text(name), Text(each.state.value, style=_STYLES[each.state]), message)
    screen.show(table, "", _summary(found))
    return screen.text


def _summary(findings: list[Finding]) -> str:
    counts = Counter(each.state for each in findings)
    if counts[State.WRONG]:
        unknown = f"; {plural(counts[State.UNKNOWN], 'check')} not possible" if counts[State.UNKNOWN] else ""
        return f"{plural(counts[State.WRONG], 'problem')}{unknown}"
    if counts[State.UNKNOWN]:
        return f"no problem found, but {plural(counts[State.UNKNOWN], 'check')} not possible"
    return "healthy"


# Runs `fairgate doctor`: reads what the user may read, runs every check, prints the findings.


_OF_REPORTS: Final = (
    Check.SERVER,
    Check.LEADER,
    Check.EVICTOR,
    Check.NODES,
    Check.IDLE,
    Check.AUTOSCALERS,
    Check.MINIMUMS,
    Check.NOTIFY,
)


class DoctorReport(msgspec.Struct):
    """The output of `fairgate doctor`."""

    healthy: Annotated[bool | None, msgspec.Meta(description="null: no problem found, but not all could be checked")]
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Observations:
    """What was read; `probe` is None if no dry run was made. `static` is what the API server has from files.

    `files` is what these register, as far as they were given; None if not.
    """

    evidence: InstallationState
    policy: Policy | None
    probe: Probe | ReadForbidden | None
    namespace: str
    is_exempt: bool
    static: StaticRegistration = NOT_STATIC
    files: list[dict[str, Any]] | None = None


def run(options: Options) -> int:
    """Check the installation, print the findings, and return the exit status."""
    try:
        with progress("Checking"):
            observed = asyncio.run(_observe(options))
    except InputError as error:
        click.echo(f"fairgate: cannot check the installation: {error}", err=True)
        return INCOMPLETE
    findings = [each for each in judge(observed) if each.check not in options.skip]
    click.echo(_written(findings, options), nl=False)
    return exit_status(findings)


async def _observe(options: Options) -> Observations:
    given = load(options.policy, unread=unread()) if options.policy is not None else None
    files = None if options.static is None else read(options.static)
    kubeconfig = options.kubeconfig or default_kubeconfig()
    namespace = options.namespace or await own_namespace(kubeconfig)
    async with await connect(kubeconfig) as connection:
        evidence = await read_installation(connection)
        policy = given or _published(evidence.policy)
        if policy is None or Check.REACHABLE in options.skip:
            return Observations(evidence, policy, None, namespace, is_exempt=False, files=files)
        found = await probe(connection, policy, namespace=namespace)
        exempt = await is_exempt(connection, namespace)
        static = await read_static_registration(connection, resource=probe_resource(policy), namespace=namespace)
        return Observations(evidence, policy, found, namespace, is_exempt=exempt, static=static, files=files)


def _published(part: ReadResult[Report]) -> Policy | None:
    """Return the policy in force; None if it is not published, or this version cannot read it."""
    try:
        return published_policy(part.value.policy) if isinstance(part, ReadValue) and part.value is not None else None
    except ClusterError:
        return None


def judge(observed: Observations) -> list[Finding]:
    """Run every check on what was read."""
    evidence, policy = observed.evidence, observed.policy
    now = evidence.now if evidence.now is not None else time.time()
    findings = registration.check_kubernetes(evidence.version)
    servers: tuple[checks.Process, ...] = ()
    evictors_alive: tuple[checks.Process, ...] = ()
    processes_alive: tuple[checks.Process, ...] = ()
    if isinstance(evidence.replicas, ReadForbidden):
        for check in _OF_REPORTS:
            findings += missing_right(check, evidence.replicas.right, role=keys.VIEWER)
    else:
        report = evidence.replicas.value or Report()
        found = checks.processes_of(report, Component.SERVER, now=now)
        evictors = checks.processes_of(report, Component.EVICTOR, now=now)
        servers, evictors_alive = found.alive, evictors.alive
        processes_alive = (*servers, *evictors_alive)
        findings += checks.check_server(found, evidence.deployments)
        findings += checks.check_leader(found, evidence.leases)
        findings += checks.check_evictor(evictors, policy, evidence.leases)
    findings += checks.check_policy(processes_alive, evidence.policy)
    findings += checks.check_room(evidence.room, now=now)
    static, files = observed.static, observed.files
    findings += registration.check_certificates(servers, evidence.configurations, now=now, files=files)
    findings += registration.check_webhooks(
        evidence.configurations, evidence.namespaces, policy, servers, is_static=static.webhooks, files=files
    )
    findings += checks.check_bypassed(servers)
    findings += registration.check_reachable(
        observed.probe, policy, namespace=observed.namespace, is_exempt=observed.is_exempt
    )
    findings += registration.check_guards(
        evidence.guards, evidence.configurations, policy, served=evidence.served, is_static=static.guards, files=files
    )
    findings += checks.check_ledger(processes_alive, evidence.ledgers, policy)
    findings += checks.check_pods(evidence.large_pods)
    if not isinstance(evidence.replicas, ReadForbidden):
        findings += checks.check_nodes(servers)
        findings += checks.check_idle(evictors_alive, policy)
        findings += checks.check_autoscalers(servers)
        findings += checks.check_minimums(processes_alive) + checks.check_room_rights(processes_alive)
        findings += checks.check_notify(processes_alive, policy)
    return findings + ok(Check.COEXISTENCE, evidence.others.text)


def _written(findings: list[Finding], options: Options) -> str:
    if options.layout.is_data:
        return to_data(report_of(findings), options.layout)
    return to_table(findings, width=columns(), is_colored=is_colored())


def report_of(findings: list[Finding]) -> DoctorReport:
    """Return the findings as data."""
    healthy = {0: True, 1: False}.get(exit_status(findings))
    return DoctorReport(healthy, findings)
