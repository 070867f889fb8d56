"""The metrics of the server. Label values come from enums and from the admins' configuration, never from pods."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter

from webhook.core.model.names import TeamName
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.observe import gpu_rows
from webhook.observe.decisions import CODES, OTHER_CODE, Decisions, Phase
from webhook.observe.gpu_time import GpuTimeMetrics
from webhook.observe.ledger_metrics import LedgerMetrics, LedgerState
from webhook.observe.process import Component, ProcessMetrics
from webhook.observe.queue_metrics import QueueMetrics
from webhook.observe.table import Row

_TIER_CHANGES: Final = (
    "fairgate_tier_changes",
    "Pods that this replica gave another tier. `tier`: the new one, guaranteed for promotions, preemptible for "
    "demotions.",
)
_READY: Final = {
    "fairgate_ready": "1 where a condition of readiness holds, 0 where not. `condition`: policy, certificate, ledger, "
    "world, serving."
}


@dataclass(frozen=True, slots=True)
class CaStatus:
    """The CAs of certificates in a Secret: when the signing one expires (Unix time), and how many are trusted."""

    expires_at: float
    trusted: int
    is_published: bool


class Metrics(ProcessMetrics):
    """All metrics of one server."""

    def __init__(self) -> None:
        super().__init__(Component.SERVER)
        self._decisions = Decisions()
        self.registry.register(self._decisions)
        self.accounting = GpuTimeMetrics(self.registry)
        self.registry.register(self.accounting)
        self._http_errors = Counter(
            "fairgate_http_errors",
            "HTTP requests that got an error response instead of a decision. A refused pod is not one.",
            ["status"],
            registry=self.registry,
        )
        self._would = Counter(
            "fairgate_would_decisions",
            "Decisions that the policy would make if it were enforced. `enforce`: shadow, warn.",
            ["enforce", "outcome", "code", "team"],
            registry=self.registry,
        )
        self._http_errors.labels("500")  # start at 0, so that the first bug is visible as an increase
        self._certificate_changes = Counter(
            "fairgate_certificate_changes",
            "Changes that this replica wrote to the certificates' Secret. `change`: created, renewed, announced, "
            "taken_over, forgotten, replaced.",
            ["change"],
            registry=self.registry,
        )

    def decision(self, phase: Phase, *, outcome: str, code: str, team: str, seconds: float) -> None:
        """Count one decision and its duration."""
        self._decisions.add(phase, outcome=outcome, code=code, team=team, seconds=seconds)

    def shadow_decision(self, enforce: str, *, outcome: str, code: str, team: str) -> None:
        """Count a decision of a policy that is not enforced."""
        self._would.labels(enforce, outcome, code if code in CODES else OTHER_CODE, team).inc()

    def http_error(self, status: int) -> None:
        """Count a request that got an HTTP error response."""
        self._http_errors.labels(str(status)).inc()

    def certificate_change(self, change: str) -> None:
        """Count a change that this process wrote to the certificates' Secret."""
        self._certificate_changes.labels(change).inc()

    def watch_readiness(self, conditions: Callable[[], Mapping[str, bool]]) -> None:
        """Export which conditions of readiness hold."""
        self.add_table(_READY, lambda: [Row((name,), (ok,)) for name, ok in conditions().items()], labels=["condition"])

    def watch_world(self, world: World) -> None:
        """Export the policy, the teams' shares and usage, and the nodes' GPUs."""
        self.watch_policy(lambda: world.policy.hash)
        self.add_table(gpu_rows.CHARGED, lambda: gpu_rows.charged_rows(world), labels=["team", "tier"])
        self.add_table(gpu_rows.TEAMS, lambda: gpu_rows.amounts_of_teams(world), labels=["team"])
        self.add_table(gpu_rows.DEPARTMENTS, lambda: gpu_rows.amounts_of_departments(world), labels=["department"])
        self.add_table(gpu_rows.NODES, lambda: gpu_rows.node_rows(world), labels=["model", "resource"])
        self.add_table(gpu_rows.MAINTENANCE, lambda: gpu_rows.maintenance_rows(world), labels=["model"])
        self.add_table(gpu_rows.REJECTING, lambda: gpu_rows.rejecting_rows(world), labels=["node"])
        self.add_table(gpu_rows.BELOW, lambda: gpu_rows.below_rows(world), labels=["team"])
        self.add_table(gpu_rows.UNUSUAL, lambda: gpu_rows.unusual_rows(world), labels=["stage"])

    def watch_history(self, problem: Callable[[], str | None], dropped: Callable[[], int]) -> None:
        """Export whether the history file can be written, and how many rows were lost since it cannot."""
        self.add_gauge(
            "fairgate_history_writable", "1 while the history file is written, 0 if not.", lambda: problem() is None
        )
        text = "Rows of the history that were dropped because they were never written."
        self.add_counts("fairgate_history_dropped_rows", text, lambda: {(): dropped()})

    def watch_queue(self, world: World) -> QueueMetrics:
        """Export how many pods wait in line; return what counts releases."""
        return QueueMetrics(self, world)

    def watch_tier_changes(self, changes: Mapping[tuple[TeamName, Tier], int]) -> None:
        """Export the promotions and demotions that this replica made."""
        self.add_counts(*_TIER_CHANGES, lambda: changes, labels=["team", "tier"])

    def watch_leader_tasks(self, failures: Mapping[str, int]) -> None:
        """Export how often each task of the leader failed."""
        self.add_counts(
            "fairgate_leader_task_failures",
            "Unexpected errors in a task of the leader, which started again. Should stay 0. `task`: registration, "
            "usage, labels, queue, refusals, policy, starts, room, usage report.",
            lambda: failures,
            labels=["task"],
        )

    def watch_registration(self, is_in_step: Callable[[], bool]) -> None:
        """Export whether the webhook configurations match the policy."""
        self.add_gauge(
            "fairgate_registration_in_step",
            "0 on a leader that cannot update the webhook configurations to match the policy, otherwise 1.",
            is_in_step,
        )

    def watch_certificate(self, expires_at: Callable[[], float]) -> None:
        """Export when the serving certificate expires, as Unix time."""
        name = "fairgate_certificate_expiration_timestamp_seconds"
        self.add_gauge(name, "When the serving certificate expires, in Unix time.", expires_at)

    def watch_cas(self, ca_status: Callable[[], CaStatus]) -> None:
        """Export the state of the CAs of certificates in a Secret."""
        columns = {
            "fairgate_ca_expiration_timestamp_seconds": "When the CA of the serving certificate expires, in Unix time.",
            "fairgate_ca_trusted": "CAs that callers should trust: 1, or 2 while one replaces another.",
            "fairgate_ca_published": "1 if the webhook configurations are known to contain these CAs.",
        }

        def row() -> Row:
            status = ca_status()
            return Row((), (status.expires_at, status.trusted, status.is_published))

        self.add_table(columns, lambda: [row()], labels=())

    def watch_ledger(
        self, states: Callable[[], Iterable[LedgerState]], *, teams: Callable[[], Iterable[TeamName]]
    ) -> LedgerMetrics:
        """Add the metrics of a ledger on the API; `states` is called on each scrape."""
        return LedgerMetrics(self, states=states, teams=teams)
