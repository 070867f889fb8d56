"""The metrics of the server. Labels come from enums and from what admins name; pods and free text never do."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily

from webhook.core.model.names import TeamName
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.observe import gpu_rows
from webhook.observe.decisions import CODES, OTHER_CODE, Decisions, Phase
from webhook.observe.gpu_time import Accounting
from webhook.observe.ledger_metrics import LedgerMetrics, Standing
from webhook.observe.process import Component, ProcessMetrics
from webhook.observe.table import Row

_TIER_CHANGES: Final = {
    "fairgate_tier_changes": "Pods that this replica gave another tier. `tier`: the new one, guaranteed for "
    "promotions, preemptible for demotions."
}
_READY: Final = {
    "fairgate_ready": "1 where a condition of readiness holds, 0 where not. `condition`: policy, certificate, ledger, "
    "world, serving."
}


@dataclass(frozen=True, slots=True)
class Authorities:
    """The CAs of certificates in a Secret: when the signing one expires (Unix time), how many callers should trust."""

    expires_at: float
    trusted: int
    is_published: bool


class Metrics(ProcessMetrics):
    """All metrics of one server."""

    def __init__(self) -> None:
        super().__init__(Component.SERVER)
        self._decisions = Decisions()
        self.registry.register(self._decisions)
        self.accounting = Accounting()
        self.registry.register(self.accounting)
        self._http_errors = Counter(
            "fairgate_http_errors",
            "HTTP requests that were answered with an error instead of a decision. A pod that is refused is none.",
            ["status"],
            registry=self.registry,
        )
        self._would = Counter(
            "fairgate_would_decisions",
            "Decisions that policy would have made, were it enforced. `enforce`: shadow, warn.",
            ["enforce", "outcome", "code", "team"],
            registry=self.registry,
        )
        self._http_errors.labels("500")  # the first bug is to be seen as a change
        self._certificate_changes = Counter(
            "fairgate_certificate_changes",
            "Changes that this replica wrote to the certificates' Secret. `change`: created, renewed, announced, "
            "taken_over, forgotten, replaced.",
            ["change"],
            registry=self.registry,
        )

    def decision(self, phase: Phase, *, outcome: str, code: str, team: str, seconds: float) -> None:
        """Count one decision and its time."""
        self._decisions.add(phase, outcome=outcome, code=code, team=team, seconds=seconds)

    def would(self, enforce: str, *, outcome: str, code: str, team: str) -> None:
        """Count what would have been decided."""
        self._would.labels(enforce, outcome, code if code in CODES else OTHER_CODE, team).inc()

    def http_error(self, status: int) -> None:
        """Count a request that was answered with an HTTP error."""
        self._http_errors.labels(str(status)).inc()

    def certificate_change(self, change: str) -> None:
        """Count a change that this process wrote to the certificates' Secret."""
        self._certificate_changes.labels(change).inc()

    def watch_readiness(self, conditions: Callable[[], Mapping[str, bool]]) -> None:
        """Show on each scrape which conditions of readiness hold."""
        self.ask(_READY, lambda: [Row((name,), (ok,)) for name, ok in conditions().items()], labels=["condition"])

    def watch_world(self, world: World) -> None:
        """Show on each scrape the policy, how the teams stand, and the nodes' GPUs."""
        self.watch_policy(lambda: world.policy.hash)
        self.ask(gpu_rows.CHARGED, lambda: gpu_rows.charged(world), labels=["team", "tier"])
        self.ask(gpu_rows.TEAMS, lambda: gpu_rows.teams(world), labels=["team"])
        self.ask(gpu_rows.STOCKS, lambda: gpu_rows.stock(world), labels=["model", "resource"])

    def watch_tier_changes(self, changes: Mapping[tuple[TeamName, Tier], int]) -> None:
        """Show on each scrape the promotions and demotions that this replica made."""
        self.ask(
            _TIER_CHANGES,
            lambda: [Row(key, (count,)) for key, count in changes.items()],
            labels=["team", "tier"],
            family=CounterMetricFamily,
        )

    def watch_registration(self, is_in_step: Callable[[], bool]) -> None:
        """Show on each scrape whether the webhook configurations follow the policy."""
        self.add_gauge(
            "fairgate_registration_in_step",
            "0 on a leader that cannot bring the webhook configurations in step with the policy, otherwise 1.",
            is_in_step,
        )

    def watch_certificate(self, expires_at: Callable[[], float]) -> None:
        """Show when the serving certificate expires, as Unix time."""
        name = "fairgate_certificate_expiration_timestamp_seconds"
        self.add_gauge(name, "When the serving certificate expires, in Unix time.", expires_at)

    def watch_authorities(self, authorities: Callable[[], Authorities]) -> None:
        """Show on each scrape how it goes with the CAs of certificates that lie in a Secret."""
        columns = {
            "fairgate_ca_expiration_timestamp_seconds": "When the CA of the serving certificate expires, in Unix time.",
            "fairgate_ca_trusted": "CAs that callers are to trust: 1, or 2 while one takes over from another.",
            "fairgate_ca_published": "1 if the webhook configurations are known to carry these CAs.",
        }

        def row() -> Row:
            told = authorities()
            return Row((), (told.expires_at, told.trusted, told.is_published))

        self.ask(columns, lambda: [row()], labels=())

    def watch_ledger(
        self, standings: Callable[[], Iterable[Standing]], *, teams: Callable[[], Iterable[TeamName]]
    ) -> LedgerMetrics:
        """Add the metrics of a ledger on the API; how each team's object stands is asked on each scrape."""
        return LedgerMetrics(self, standings=standings, teams=teams)
