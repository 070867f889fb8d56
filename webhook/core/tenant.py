"""A GPU pod as reclaim sees it, and what decides whether it may be sent away or is waited for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from webhook.core.amount import UNLIMITED
from webhook.core.names import Namespace, NodeName, TeamName
from webhook.core.pod import NO_KEYS, Resident
from webhook.core.policy import LabelSelector, ReclaimRules
from webhook.core.reclaim import Waiting
from webhook.core.selector import NO_CONSTRAINTS, Constraints
from webhook.core.tier import Tier
from webhook.core.topology import TopologyRule
from webhook.core.victim import GangId, GuardId, Victim


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod that is there. Times are seconds of Unix time.

    `saved_at` is its last checkpoint as it says itself, 0 where it says none. `leaves_at` is when its grace period is
    over, None while nobody deleted it. `notice_at` is when its eviction was announced for. `is_gated`: a scheduling
    gate holds it back. `started_at` is 0 before it started. `chosen` are the nodes that the gate chose for it.
    Where it may go (`constraints`, `topology`, `chosen`) is known only while it waits.
    """

    pod: Resident
    labels: Mapping[str, str] = field(default_factory=lambda: NO_KEYS)
    constraints: Constraints = NO_CONSTRAINTS
    topology: tuple[TopologyRule, ...] = ()
    gang: GangId | None = None
    started_at: int = 0
    saved_at: int = 0
    leaves_at: int | None = None
    notice_at: int | None = None
    grace_seconds: int = 30
    is_gated: bool = False
    chosen: tuple[NodeName, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Tell whether it is guaranteed and waits for a node, and nothing else holds it back."""
        pod = self.pod
        return pod.tier is Tier.GUARANTEED and pod.node is None and not pod.is_terminating and not self.is_gated

    @property
    def team(self) -> TeamName:
        """Name the team that the gate wrote on it."""
        return TeamName(self.pod.team_label or "")

    def waiting(self) -> Waiting:
        """Describe it as one that waits."""
        pod = self.pod
        return Waiting(
            pod.uid,
            pod.namespace,
            pod.name,
            self.team,
            pod.demand,
            self.constraints,
            pod.created,
            self.gang,
            self.chosen,
            self.labels,
            self.topology,
        )


@dataclass(frozen=True, slots=True)
class Disruption:
    """A PodDisruptionBudget: whose pods it guards, and how many of them may go now."""

    namespace: Namespace
    name: str
    selector: LabelSelector
    allowed: int

    @property
    def guard(self) -> GuardId:
        """Name it as a guard of victims."""
        return GuardId(f"pdb {self.namespace}/{self.name}")

    def covers(self, tenant: Tenant) -> bool:
        """Tell whether it guards a pod."""
        return tenant.pod.namespace == self.namespace and self.selector.matches(tenant.labels)


def team_guard(team: TeamName) -> GuardId:
    """Name a team's eviction budget."""
    return GuardId(f"team {team}")


def victim_of(tenant: Tenant, *, rules: ReclaimRules, guards: tuple[GuardId, ...]) -> Victim | None:
    """Describe a pod as one that may be sent away; None where it never may.

    `guards` are the budgets that cover it. Two PodDisruptionBudgets are one too many: the API refuses such evictions.
    """
    pod = tenant.pod
    if pod.tier is not Tier.PREEMPTIBLE or pod.node is None or pod.is_terminating or len(guards) > 1:
        return None
    if is_protected(tenant, rules):
        return None
    started_at = tenant.started_at or pod.created
    return Victim(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        team=tenant.team,
        node=pod.node,
        demand=pod.demand,
        started_at=started_at,
        saved_at=max(started_at, tenant.saved_at),
        until=started_at + rules.minimum_runtime_seconds if rules.minimum_runtime_seconds else 0,
        gang=tenant.gang,
        guards=guards if rules.evictions_per_minute is UNLIMITED else (*guards, team_guard(tenant.team)),
    )


def is_protected(tenant: Tenant, rules: ReclaimRules) -> bool:
    """Tell whether policy keeps a pod from ever being a victim."""
    return any(fnmatchcase(tenant.pod.namespace, glob) for glob in rules.protected_namespaces) or any(
        selector.matches(tenant.labels) for selector in rules.protected_selectors
    )
