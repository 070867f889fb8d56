"""The report of one server: policy, readiness, leadership, certificate, registration, lag behind the ledger."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from webhook import __version__
from webhook.cluster.ledger.ledger import TeamState
from webhook.cluster.watch.feed import AutoscalerWatch
from webhook.cluster.writes.lease import Lease
from webhook.core.explain.pod_rows import (
    PoolProblem,
    autoscaling_problems,
    autoscaling_text,
    bypassed_pods,
    bypassed_text,
)
from webhook.core.explain.team_rows import minimums_text
from webhook.core.model.amounts import TeamName
from webhook.core.world.world import World
from webhook.kube.ledger.reports import (
    MAX_CERTIFICATE_CHARACTERS,
    MAX_NODES,
    MAX_POOLS,
    MAX_TEAMS,
    ReplicaReport,
    shortened,
)
from webhook.observe.processes import Component
from webhook.policy.watch import PolicyHolder
from webhook.server.http.handlers import Readiness

BEHIND_SECONDS: Final = 10.0
"""How long a lag behind a ledger must last before it is reported: short lags are normal."""


@dataclass(slots=True)
class LedgerLag:
    """Since when this replica's view of the pods has been behind each team's ledger."""

    states: Callable[[], Iterable[TeamState]]
    clock: Callable[[], float]
    _since: dict[TeamName, float] = field(default_factory=dict)

    def behind(self) -> list[str]:
        """Return the teams whose ledger has been ahead of the view of the pods for BEHIND_SECONDS."""
        now = self.clock()
        lagging = {state.team: state.lag for state in self.states() if state.lag > 0}
        self._since = {team: self._since.get(team, now) for team in lagging}
        late = sorted(team for team, since in self._since.items() if now - since >= BEHIND_SECONDS)
        return [f"team {team}: {lagging[team]} resourceVersions behind" for team in late[:MAX_TEAMS]]


@dataclass(frozen=True, slots=True)
class ServerState:
    """The sources of a server's report."""

    holder: PolicyHolder
    readiness: Readiness
    lease: Lease
    certificate: Callable[[], str]
    registration: Callable[[], str | None]
    lag: LedgerLag
    rejecting: Callable[[], Iterable[str]]
    stalled: Callable[[], str]
    maintained: Callable[[], Iterable[str]]
    unreviewed: Callable[[], Iterable[str]]
    world: World
    autoscalers: AutoscalerWatch
    left_out: Callable[[], list[str]]
    of_addons: Callable[[], Mapping[str, Any]]

    def report(self, at: str) -> ReplicaReport:
        """Return the report as of now; `at` is the time of day."""
        policy, failing = self.holder.current, self.readiness.conditions().items()
        certificate, is_leading = self.certificate(), self.lease.is_leading
        unfit = autoscaling_problems(self.world) if is_leading else ()
        return ReplicaReport(
            component=Component.SERVER,
            at=at,
            version=__version__,
            policy=policy.hash,
            enforce=policy.enforce.value,
            policy_problem=shortened(self.holder.problem or ""),
            leading=is_leading,
            election=shortened(self.lease.problem or ""),
            not_ready=[shortened(f"{name}: {each.why}") for name, each in failing if not each.ok],
            certificate=certificate if len(certificate) <= MAX_CERTIFICATE_CHARACTERS else "",
            registration=shortened(self.registration() or ""),
            behind=self.lag.behind(),
            rejecting=_listed(self.rejecting()) if is_leading else [],
            stalled=shortened(self.stalled()) if is_leading else "",
            maintained=_listed(self.maintained()) if is_leading else [],
            unreviewed=_listed(self.unreviewed()) if is_leading else [],
            autoscaling=shortened(autoscaling_text(self.world)) if is_leading else "",
            autoscaling_problems=[_shown(each) for each in unfit][:MAX_POOLS],
            autoscaling_unsure=shortened(self.autoscalers.why_unsure) if is_leading else "",
            minimums=shortened(minimums_text(self.world)) if is_leading else "",
            bypassed=bypassed_text(bypassed_pods(self.world)) if is_leading else "",
            left_out=self.left_out(),
            **self.of_addons(),
        )


def _listed(texts: Iterable[str]) -> list[str]:
    return [shortened(text) for text in islice(texts, MAX_NODES)]


def _shown(problem: PoolProblem) -> str:
    name = problem.pool.name
    where = f"pools {name}: autoscaled" if name else "all nodes are one pool: autoscaled"
    return shortened(f"{where} {problem.text}")
