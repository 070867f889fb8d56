"""The checks of `fairgate doctor`: processes, pods, minimums, autoscalers.

The result of a check: ok, wrong with a remedy, skipped, or unknown because a right is missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from webhook.cluster.reads.installation import LeaseState, ReadForbidden, ReadResult, ReadValue
from webhook.core.model.amounts import plural, printable
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import PolicyReport, ReplicaReport, Report
from webhook.kube.nodes.nodes import VOLUMES
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import EVICTABLE_BYTES
from webhook.kube.registration import inventory
from webhook.kube.workloads.unknown_kinds import SCALER_API, SCALERS
from webhook.observe.processes import Component

HEALTHY: Final = 0
UNHEALTHY: Final = 1
INCOMPLETE: Final = 2


class Check(StrEnum):
    """The checks in display order."""

    KUBERNETES = "kubernetes"
    SERVER = "server"
    LEADER = "leader"
    EVICTOR = "evictor"
    POLICY = "policy"
    ROOM = "room"
    CERTIFICATES = "certificates"
    WEBHOOKS = "webhooks"
    REACHABLE = "reachable"
    GUARDS = "guards"
    LEDGER = "ledger"
    PODS = "pods"
    NODES = "nodes"
    IDLE = "idle"
    AUTOSCALERS = "autoscalers"
    MINIMUMS = "minimums"
    NOTIFY = "notify"
    COEXISTENCE = "coexistence"


class State(StrEnum):
    """The result of a check. `skipped`: there is nothing to check, or only an admin can."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """One result of a check."""

    check: Check
    state: State
    message: str
    remedy: Annotated[str, msgspec.Meta(description="what to do; empty for nothing")]


def ok(check: Check, message: str) -> list[Finding]:
    """Return the result of a check that found no problem."""
    return [Finding(check, State.OK, message, "")]


def skipped(check: Check, message: str) -> list[Finding]:
    """Return why there is nothing to check."""
    return [Finding(check, State.SKIPPED, message, "")]


def unknown(check: Check, message: str, remedy: str) -> list[Finding]:
    """Return why a check was not possible, and what would make it possible."""
    return [Finding(check, State.UNKNOWN, message, remedy)]


def wrong(check: Check, messages: Iterable[str], remedy: str) -> list[Finding]:
    """Return problems with a common remedy."""
    return [Finding(check, State.WRONG, message, remedy) for message in messages]


def missing_right(check: Check, right: str, *, role: str) -> list[Finding]:
    """Return which right a check needs, and the ClusterRole that grants it."""
    return unknown(check, f"not checked: you lack the right to {right}", f"the ClusterRole {role} grants it")


def exit_status(findings: Iterable[Finding]) -> int:
    """Return the exit status: a problem takes precedence over an unknown."""
    states = {finding.state for finding in findings}
    return UNHEALTHY if State.WRONG in states else INCOMPLETE if State.UNKNOWN in states else HEALTHY


# The check of pods: whether the API server could still evict each of them.


_SHOWN: Final = 10
_REMEDY: Final = "have its owner remove what pads it: owner references, finalizers, labels, managers that apply it"


def check_pods(large: ReadResult[list[str]]) -> list[Finding]:
    """Report pods that are so large that etcd may refuse what their eviction writes."""
    if isinstance(large, ReadForbidden):
        return skipped(Check.PODS, f"for admins: you lack the right to {large.right} of all namespaces")
    names = large.value or []
    if not names:
        return ok(Check.PODS, "none is too large to be evicted")
    more = [f"{len(names) - _SHOWN:,} more pods are as large"] if len(names) > _SHOWN else []
    found = [
        f"pod {name} has more than {EVICTABLE_BYTES:,} bytes: it may be too large to be evicted or deleted"
        for name in names[:_SHOWN]
    ]
    return wrong(Check.PODS, [*found, *more], _REMEDY)


# Checks of the processes by their reports: servers, leader, evictor, policy, lag behind the ledger.


STALE_ROOM_SECONDS: Final = 150.0
"""The room is written again every minute, or later where it takes the leader long."""

_MOST_NAMED: Final = 10
_UNEVICTABLE: Final = (
    "others go instead while there are any: mend the webhook or policy that is named, or the node; "
    "docs/concepts/reclaim.md#victims-that-cannot-be-evicted"
)
_STALLED: Final = (
    "see the leader's log for `pod not released` and its ledgers, and restart it: "
    "docs/tasks/runbooks.md#fairgatequeuestalled"
)
_UNSERVED: Final = (
    "Fairgate sees room that its scheduler does not use: the report says why; "
    "docs/concepts/reclaim.md#where-kube-scheduler-sees-no-room"
)
_LOGS: Final = "see the process's log, and its rights in docs/reference/rights.md"


@dataclass(frozen=True, slots=True)
class Process:
    """One process and its report; `silent_seconds` is the report's age."""

    name: str
    report: ReplicaReport
    silent_seconds: float

    @property
    def host(self) -> str:
        """The pod, or the machine, that it runs on."""
        return self.name.rpartition("_")[0]


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one component: those that report, and those that stopped reporting without a clean shutdown."""

    alive: tuple[Process, ...]
    silent: tuple[Process, ...]


def processes_of(report: Report, component: Component, *, now: float) -> Processes:
    """Return the processes of a component, without those that were replaced by another process in the same pod."""
    found = []
    for name, each in sorted(report.replicas.items()):
        if each.component == component:
            at = reports.read_at(each.at)
            found.append(Process(name, each, now - at if at is not None else float("inf")))
    alive = tuple(each for each in found if each.silent_seconds <= reports.SILENT_SECONDS)
    hosts = {each.host for each in alive}
    return Processes(alive, tuple(each for each in found if each not in alive and each.host not in hosts))


def check_server(found: Processes, deployments: ReadResult[list[dict[str, Any]]]) -> list[Finding]:
    """Check that servers report and are ready, and that deployments have all their replicas."""
    check = Check.SERVER
    problems: list[Finding] = []
    if not found.alive:
        problems += wrong(
            check,
            ["no server reports: without one no GPU pod is created"],
            "start one; if one runs, it lacks the right to patch reports, their definition is missing (`fairgate "
            "manifests` prints it), or it cannot reach the API server",
        )
    problems += _silent(check, found.silent)
    for each in found.alive:
        messages = [f"{each.name} is not ready: {why}" for why in each.report.not_ready]
        problems += wrong(check, messages, "correct what the condition names; docs/tasks/troubleshoot.md#readiness")
        if each.report.registration:
            text = f"{each.name}: the registration does not match the policy: {each.report.registration}"
            problems += wrong(check, [text], "grant the named right, or apply `fairgate manifests` again")
        if each.report.history:
            text = f"{each.name} records no usage on disk: {each.report.history}"
            problems += wrong(check, [text], "free its volume or have it mounted; a day is kept in memory meanwhile")
    if isinstance(deployments, ReadValue):
        problems += wrong(
            check,
            inventory.deployment_problems(deployments.value or ()),
            "see `kubectl describe pod` and the logs of its pods",
        )
    ready = f"{plural(len(found.alive), 'server')} {'reports' if len(found.alive) == 1 else 'report'}, ready"
    if isinstance(deployments, ReadForbidden):
        ready += f"; the expected number is unknown (you need the right to {deployments.right})"
    return problems or ok(check, ready)


def check_leader(found: Processes, leases: ReadResult[list[LeaseState]]) -> list[Finding]:
    """Check that one server leads, and that the queue does not stand still."""
    check = Check.LEADER
    stalled = wrong(check, [each.report.stalled for each in found.alive if each.report.stalled], _STALLED)
    why = "the leader writes tiers and updates ledgers and registration"
    elected = _election(check, found, _Election("server", keys.SERVER_LEASE, why, leases))
    return stalled + [each for each in elected if each.remedy] if stalled else elected


def check_evictor(found: Processes, policy: Policy | None, leases: ReadResult[list[LeaseState]]) -> list[Finding]:
    """Check that an evictor leads, if any team has a guaranteed share, or pods are to be moved."""
    check, moves = Check.EVICTOR, policy is not None and policy.defragment.is_on
    if not (found.alive or moves or policy is None or any(team.gpus.guaranteed for team in policy.teams)):
        return skipped(check, "no evictor reports, and no team has a guaranteed share to reclaim")
    if not found.alive:
        return wrong(
            check,
            [f"no evictor reports: borrowed GPUs are not reclaimed{', and no pods are moved' if moves else ''}"],
            "start one (`fairgate evict`; in the chart evictor.enabled), or skip this check with --skip evictor",
        )
    messages = [f"{each.name} is not ready: {why}" for each in found.alive for why in each.report.not_ready]
    problems = [*_silent(check, found.silent), *wrong(check, messages, _LOGS)]
    texts = [text for each in found.alive for text in each.report.unevictable]
    problems += wrong(check, [f"a borrowing pod cannot be evicted: {text}" for text in texts], _UNEVICTABLE)
    texts = [text for each in found.alive for text in each.report.unserved]
    problems += wrong(
        check, [f"GPUs were freed for a waiting pod, which did not start: {text}" for text in texts], _UNSERVED
    )
    texts = [f"{each.name} moves no pods: {each.report.moving}" for each in found.alive if each.report.moving]
    problems += wrong(check, texts, "its rights are those of `fairgate manifests`: apply them again")
    elected = _election(check, found, _Election("evictor", keys.EVICTOR_LEASE, "only the leader evicts", leases))
    return problems + [each for each in elected if each.remedy] or elected


def check_policy(found: Iterable[Process], published: ReadResult[Report]) -> list[Finding]:
    """Check that all processes have the published policy in force, and that none rejected an edit."""
    check = Check.POLICY
    if isinstance(published, ReadForbidden):
        return missing_right(check, published.right, role=keys.VIEWER)
    current = published.value.policy if published.value is not None else None
    if current is None:
        return wrong(
            check,
            ["no policy is published"],
            "the leader publishes it within seconds: check that a server leads, and may create and patch reports",
        )
    problems = []
    for each in found:
        report = each.report
        if report.policy_problem:
            text = f"{each.name} rejected an invalid edit: {report.policy_problem}"
            problems += wrong(check, [text], "correct the policy files: `fairgate policy check DIR`")
        if (report.policy, report.enforce) != (current.hash, current.enforce):
            text = f"{each.name} has policy {report.policy} ({report.enforce}) in force, published is {_named(current)}"
            remedy = "an edit reaches all processes within seconds (of a ConfigMap in a minute): check again; then"
            problems += wrong(check, [text], f"{remedy} compare mounts and --enforce")
    if current.omitted:
        problems += wrong(check, [current.omitted], "viewers must give --policy DIR to every command: split the policy")
    return problems or ok(check, f"policy {_named(current)} is in force everywhere")


def check_room(published: ReadResult[Report], *, now: float) -> list[Finding]:
    """Check that what people see who may not list nodes is current and whole."""
    check = Check.ROOM
    if isinstance(published, ReadForbidden):
        return missing_right(check, published.right, role=keys.VIEWER)
    room = published.value.room if published.value is not None else None
    at = None if room is None else reports.read_at(room.at)
    if room is None or at is None:
        text = "free GPUs are not published: users who may not list nodes see none"
        return wrong(check, [text], "the leader publishes it within seconds: check that a server of this version leads")
    if now - at > STALE_ROOM_SECONDS:
        text = f"free GPUs were last published {now - at:.0f} s ago: viewers see that state"
        return wrong(check, [text], f"it is written again every minute by the leader: {_LOGS}")
    if room.omitted:
        return wrong(
            check, [f"the published state omits {room.omitted}"], "viewers then see less; docs/tasks/looking.md"
        )
    return ok(check, f"free GPUs are published: {plural(room.nodes, 'node')}, {plural(room.pods, 'pod')} without names")


def check_ledger(
    found: Iterable[Process], ledgers: ReadResult[list[dict[str, Any]]], policy: Policy | None
) -> list[Finding]:
    """Check that every team has a ledger, and that no server is behind the ledgers."""
    check = Check.LEDGER
    problems = [
        finding
        for each in found
        for finding in wrong(
            check,
            [f"{each.name} is behind: {text}" for text in each.report.behind],
            "its watch of pods is stuck, and it admits no pods of these teams: restart it",
        )
    ]
    if isinstance(ledgers, ReadForbidden):
        return problems or missing_right(check, ledgers.right, role=keys.VIEWER)
    if policy is None:
        return problems or unknown(check, "not checked: the policy is unknown", "see the check `policy`")
    existing = {_team(ledger) for ledger in ledgers.value or ()}
    missing = [team.name for team in policy.teams if team.name not in existing]
    problems += wrong(
        check,
        [f"team {name} has no TeamLedger" for name in missing],
        "the leader creates it within seconds: check that a server leads, and that the CRD is installed",
    )
    kept = sorted(_keeping_gates(ledgers.value or ()))
    more = f" and {len(kept) - _MOST_NAMED} more" if len(kept) > _MOST_NAMED else ""
    rest = (
        f"; {plural(len(kept), 'charged pod')} queued until borrowers leave: {', '.join(kept[:_MOST_NAMED])}{more}"
        if kept
        else ""
    )
    return problems or ok(check, f"{plural(len(existing), 'ledger')}; no server is behind{rest}")


def _keeping_gates(ledgers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the pods that are charged and keep their gate until reclaim has made their room."""
    for ledger in ledgers:
        for entry in (ledger.get("ledger") or {}).get("inFlight") or ():
            if entry.get("reclaims"):
                yield printable(f"{entry.get('ns', '')}/{entry.get('name', '')}")


def check_notify(found: Iterable[Process], policy: Policy | None) -> list[Finding]:
    """Check that each target of messages to people is reached from each process."""
    targets = () if policy is None else policy.notify.targets
    if not targets:
        return ok(Check.NOTIFY, "policy names no target of messages to people")
    problems = [f"{text} (from {each.name})" for each in found for text in each.report.notify]
    remedy = "correct its address or secret, or allow the connection; docs/tasks/notify.md#when-messages-do-not-arrive"
    names = ", ".join(target.name for target in targets)
    return wrong(Check.NOTIFY, problems, remedy) or ok(Check.NOTIFY, f"messages reach {names}")


def check_nodes(found: Iterable[Process]) -> list[Finding]:
    """Check that no node rejects the pods that it gets, by the leader's report; without a leader there is no result.

    Nodes that operators change take no new pods meanwhile, which is no problem.
    """
    leaders = [each.report for each in found if each.report.leading]
    if not leaders:
        return []
    rejecting = [text for report in leaders for text in report.rejecting]
    remedy = "see `kubectl describe node` and kubelet's log there: cordon the node until its devices are repaired"
    maintained = ", ".join(text for report in leaders for text in report.maintained)
    text = "no node rejects the pods that it gets" + (f"; in maintenance: {maintained}" if maintained else "")
    return wrong(Check.NODES, rejecting, remedy) or ok(Check.NODES, text)


def check_idle(found: Iterable[Process], policy: Policy | None) -> list[Finding]:
    """Check that the evictor knows which pods use their GPUs, by the leader's report; without a leader no result.

    There is none either where policy does not ask for that.
    """
    check, leaders = Check.IDLE, [each.report for each in found if each.report.leading]
    if policy is None or policy.idle is None or not leaders:
        return []
    problems = [each.idle_problem for each in leaders if each.idle_problem]
    remedy = "no pod counts as idle until then: check the section idle, its files, and that Prometheus scrapes "
    messages = [f"the use of GPUs is not known: {text}" for text in problems]
    return wrong(check, messages, f"{remedy}the exporter; docs/tasks/idle.md#checks") or ok(
        check, f"{policy.idle.source.url} answers with the utilization of GPUs"
    )


def _team(ledger: Mapping[str, Any]) -> str:
    return str((ledger.get("status") or {}).get("team", ""))


def _named(report: PolicyReport) -> str:
    return f"{report.hash} ({report.enforce})"


def _silent(check: Check, silent: Iterable[Process]) -> list[Finding]:
    messages = [
        f"{each.name} has not reported for {each.silent_seconds:.0f} s and did not shut down cleanly" for each in silent
    ]
    return wrong(
        check, messages, "it was killed, hangs, or cannot reach the API server; its report expires after five minutes"
    )


class _Election(NamedTuple):
    """What is elected, by which Lease, why that matters, and the Leases that are held, as far as they may be read."""

    component: str
    lease: str
    why: str
    leases: ReadResult[list[LeaseState]]

    @property
    def held(self) -> list[LeaseState]:
        found = self.leases.value or () if isinstance(self.leases, ReadValue) else ()
        return [each for each in found if each.name == self.lease]


_KILLED: Final = "it was killed, hangs, or cannot reach the API server"


def _election(check: Check, found: Processes, election: _Election) -> list[Finding]:
    component, why = election.component, election.why
    leaders = [each.name for each in found.alive if each.report.leading]
    problems = [
        f"{each.name} cannot take part in the election: {each.report.election}"
        for each in found.alive
        if each.report.election
    ]
    stuck = [each for each in election.held if each.is_stuck]
    if len(leaders) == 1 and not problems and not stuck:
        return ok(check, f"{leaders[0]} leads")
    findings = wrong(check, problems, _LOGS)
    if stuck:
        texts = [
            f"{each.holder} leads, and renewed its Lease {each.age_seconds:.0f} s ago: {_KILLED}" for each in stuck
        ]
        return findings + wrong(
            check, texts, "another one takes over within 15 s: check again, and see its pod and log"
        )
    if not leaders and found.alive:
        findings += wrong(
            check, [f"no {component} leads: {why}"], "an election takes up to 20 s: check again; then see the logs"
        )
    elif not leaders:
        findings += wrong(check, [f"no {component} runs"], f"start one: the check `{component}` has the details")
    elif len(leaders) > 1:
        current = {each.holder: each.namespace for each in election.held}
        findings += _several_lead(check, [each for each in found.alive if each.report.leading], current)
    return findings


def _several_lead(check: Check, leaders: list[Process], current: Mapping[str, str]) -> list[Finding]:
    """Return which of the processes that reported to lead still do: `current` has the namespaces of their Leases."""
    leading = [each for each in leaders if each.name in current]
    if len(leading) == 1:
        now = leading[0].name
        texts = [
            f"{each.name} reported {each.silent_seconds:.0f} s ago that it leads, and {now} leads now: {_KILLED}"
            for each in leaders
            if each is not leading[0]
        ]
        return wrong(check, texts, "nothing, if its pod was replaced: its report expires after five minutes")
    same = "give all the same --namespace"
    if leading:
        where = ", ".join(f"{each.name} by the Lease in namespace {current[each.name]}" for each in leading)
        return wrong(check, [f"more than one leads: {where}"], same)
    names = ", ".join(f"{each.name} ({each.silent_seconds:.0f} s ago)" for each in leaders)
    remedy = f"one that was killed counts for 35 s: check again; else their Leases are in several namespaces: {same}"
    return wrong(check, [f"more than one reported to lead: {names}"], remedy)


# The check of autoscalers: which were found, and whether policy agrees with who owns the nodes of each pool.


_AUTOSCALER_RIGHT = (
    "grant the right to get that ConfigMap, or set `autoscaled` in each pool; "
    "docs/reference/rights.md#servers-and-evictors"
)


def check_autoscalers(found: Iterable[Process]) -> list[Finding]:
    """Check what the leader found of autoscalers; without a leader there is no result."""
    findings: list[Finding] = []
    for report in (each.report for each in found if each.report.leading and each.report.autoscaling):
        problems = wrong(Check.AUTOSCALERS, report.autoscaling_problems, "docs/tasks/autoscalers.md#which-pools-grow")
        if report.autoscaling_unsure:
            problems += unknown(
                Check.AUTOSCALERS, f"not all could be looked for: {report.autoscaling_unsure}", _AUTOSCALER_RIGHT
            )
        findings += problems or ok(Check.AUTOSCALERS, report.autoscaling)
    return findings


# Checks of kinds that are read where that is allowed, minimums of replicas among them: whether each process may.


_SCALERS_RIGHT: Final = (
    f"apply `fairgate manifests` or the chart again: they grant list and watch of {SCALERS} in "
    f"{SCALER_API.partition('/')[0]}; docs/tasks/troubleshoot.md#the-checks"
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
    return wrong(Check.MINIMUMS, blind, _SCALERS_RIGHT) or ok(Check.MINIMUMS, told)


def check_bypassed(servers: Iterable[Process]) -> list[Finding]:
    """Say how many pods have no decision, by the leader's report: some came before Fairgate, which is no problem."""
    return [found for each in servers if each.report.bypassed for found in ok(Check.WEBHOOKS, each.report.bypassed)]


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
    remedy = (
        "apply `fairgate manifests` or the chart again: they grant list and watch of these; docs/reference/rights.md"
    )
    return wrong(Check.ROOM, blind, remedy)
