"""What one server reports of itself: policy, readiness, leadership, certificate, registration, lag of the ledger."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from webhook import __version__
from webhook.cluster.ledger.ledger import TeamState
from webhook.cluster.writes.lease import Lease
from webhook.core.model.names import TeamName
from webhook.kube.ledger.reports import MAX_CERTIFICATE_CHARACTERS, MAX_TEAMS, ReplicaReport, shortened
from webhook.observe.process import Component
from webhook.policy.watch import PolicyHolder
from webhook.server.http.probes import Readiness

BEHIND_SECONDS: Final = 10.0
"""How long a view must lag behind a ledger before it is reported: for a moment any replica does."""


@dataclass(slots=True)
class Lag:
    """Since when this replica's view of the pods is behind each team's ledger."""

    states: Callable[[], Iterable[TeamState]]
    clock: Callable[[], float]
    _since: dict[TeamName, float] = field(default_factory=dict)

    def behind(self) -> list[str]:
        """Name the teams whose ledger the view has not reached for too long."""
        now = self.clock()
        lagging = {state.team: state.lag for state in self.states() if state.lag > 0}
        self._since = {team: self._since.get(team, now) for team in lagging}
        late = sorted(team for team, since in self._since.items() if now - since >= BEHIND_SECONDS)
        return [f"team {team}: {lagging[team]} resourceVersions behind" for team in late[:MAX_TEAMS]]


@dataclass(frozen=True, slots=True)
class ServerState:
    """Where the parts of a server's report are read."""

    holder: PolicyHolder
    readiness: Readiness
    lease: Lease
    certificate: Callable[[], str]
    registration: Callable[[], str | None]
    lag: Lag

    def report(self, at: str) -> ReplicaReport:
        """Describe the server as it is now; `at` is the time of day."""
        policy, failing = self.holder.current, self.readiness.conditions().items()
        certificate = self.certificate()
        return ReplicaReport(
            component=Component.SERVER,
            at=at,
            version=__version__,
            policy=policy.hash,
            enforce=policy.enforce.value,
            policy_problem=shortened(self.holder.problem or ""),
            leading=self.lease.is_leading,
            election=shortened(self.lease.problem or ""),
            not_ready=[shortened(f"{name}: {each.why}") for name, each in failing if not each.ok],
            certificate=certificate if len(certificate) <= MAX_CERTIFICATE_CHARACTERS else "",
            registration=shortened(self.registration() or ""),
            behind=self.lag.behind(),
        )
