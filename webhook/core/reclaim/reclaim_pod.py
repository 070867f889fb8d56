"""A GPU pod as reclaim sees it, and what decides whether it may be sent away or is waited for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from webhook.core.model.names import Namespace, NodeName, TeamName
from webhook.core.model.pod import NO_KEYS, Resident
from webhook.core.model.policy import LabelSelector, ReclaimRules
from webhook.core.model.selector import NO_CONSTRAINTS, Constraints
from webhook.core.model.tier import Tier
from webhook.core.model.topology import TopologyRule
from webhook.core.reclaim.failures import Loss, WorkloadId
from webhook.core.reclaim.reclaim_plan import Waiting
from webhook.core.reclaim.victim import GangId, GuardId, Victim

TWO_BUDGETS: Final = GuardId("more than one budget")
"""Guards the pods that several PodDisruptionBudgets cover: the API refuses to evict those."""


class Report(NamedTuple):
    """Why kube-scheduler says that it cannot place a pod, and since when, in seconds of Unix time.

    `is_for_room`: some node lacks what the pod asks for; `is_for_taints`: some node has a taint that it does not
    tolerate. What else may hold a pod back, such as a volume that is not there, no eviction mends.
    """

    since: int
    is_for_room: bool = False
    is_for_taints: bool = False


class Controller(NamedTuple):
    """The controller of a pod, named in full."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod that is there. Times are seconds of Unix time.

    `saved_at` is its last checkpoint as it says itself, 0 where it says none. `leaves_at` is when its grace period is
    over, None while nobody deleted it, and `leave_seconds` how long that grace period is. `notice_at` is when its
    eviction was announced for. `is_gated`: a scheduling gate holds it back. `started_at` is 0 before it started.
    `chosen` are the nodes that the gate chose for it. Where it may go (`constraints`, `topology`, `chosen`) and why it
    is nowhere (`report`) is known only while it waits. `gang_size` is how many pods its gang is said to have, 0 where
    nobody says. `controller` made it, as its owner reference names it; `workload` is the same object as a key, and
    `loss` what its eviction means to that one.
    """

    pod: Resident
    labels: Mapping[str, str] = field(default_factory=lambda: NO_KEYS)
    constraints: Constraints = NO_CONSTRAINTS
    topology: tuple[TopologyRule, ...] = ()
    gang: GangId | None = None
    gang_size: int = 0
    started_at: int = 0
    saved_at: int = 0
    leaves_at: int | None = None
    leave_seconds: int = 0
    notice_at: int | None = None
    grace_seconds: int = 30
    is_gated: bool = False
    chosen: tuple[NodeName, ...] = ()
    report: Report | None = None
    controller: Controller | None = None
    workload: WorkloadId | None = None
    loss: Loss = Loss.COUNTED

    @property
    def is_waiting(self) -> bool:
        """Tell whether it is guaranteed and waits for a node, and nothing else holds it back."""
        pod = self.pod
        return pod.tier is Tier.GUARANTEED and pod.node is None and not pod.is_terminating and not self.is_gated

    def is_leaving(self, rules: ReclaimRules) -> bool:
        """Tell whether it is on its way out, and will be gone in time: whoever may delete pods may say when."""
        return self.pod.is_terminating and self.leave_seconds <= rules.longest_grace_seconds

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
            0 if self.report is None else self.report.since,
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


def victim_of(
    tenant: Tenant, *, rules: ReclaimRules, guards: tuple[GuardId, ...], has_budget: bool = False
) -> Victim | None:
    """Describe a pod as one that may be sent away; None where it never may.

    `guards` are the budgets that cover it; one that terminates is covered by none, and its long grace period is cut.
    `has_budget`: its workload fails after some failures.
    """
    pod = tenant.pod
    if pod.tier is not Tier.PREEMPTIBLE or pod.node is None or tenant.is_leaving(rules):
        return None
    if is_protected(tenant, rules):
        return None
    started_at = tenant.started_at or pod.created
    asked = tenant.leave_seconds if pod.is_terminating else tenant.grace_seconds
    grace = min(asked, rules.longest_grace_seconds)
    return Victim(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        team=tenant.team,
        node=pod.node,
        demand=pod.demand,
        started_at=started_at,
        saved_at=max(started_at, tenant.saved_at) - grace,
        until=started_at + rules.minimum_runtime_seconds if rules.minimum_runtime_seconds else 0,
        gang=tenant.gang,
        guards=() if pod.is_terminating else guards if len(guards) <= 1 else (*guards, TWO_BUDGETS),
        grace_seconds=grace if grace < asked else None,
        workload=tenant.workload if has_budget else None,
        is_counted=has_budget and tenant.loss is not Loss.HARMLESS,
    )


def is_protected(tenant: Tenant, rules: ReclaimRules) -> bool:
    """Tell whether policy keeps a pod from ever being a victim."""
    return any(fnmatchcase(tenant.pod.namespace, glob) for glob in rules.protected_namespaces) or any(
        selector.matches(tenant.labels) for selector in rules.protected_selectors
    )
