"""The input and the result of a round of planning, and in which order departments give."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.model.amounts import (
    UNLIMITED,
    DepartmentName,
    GangId,
    Limit,
    NodeName,
    TeamName,
    Uid,
    Units,
    Unlimited,
)
from webhook.core.model.constraints import DomainRequest
from webhook.core.model.policy import Department, ReclaimCost, Team
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.pod_counts import PodCounts
from webhook.core.quota.shares import DepartmentUsage
from webhook.core.reclaim.reclaim_pods import NO_SHARING, ReclaimPod, Sharing
from webhook.core.reclaim.refused_nodes import RefusedNodes
from webhook.core.reclaim.victims import (
    GuardId,
    Remaining,
    Victim,
    VictimCost,
    VictimIndex,
    WorkloadId,
)
from webhook.core.world.minimums import Minimums

_STEP: Final = 1 << 48
"""How much more a GPU unit of the next class costs: no number of others outweighs it, a cluster has fewer."""

_NONE: Final[Mapping[TeamName, int]] = {}


class DepartmentOrder:
    """The cost of a GPU unit of each team, for beneficiaries of each department."""

    def __init__(self, teams: Iterable[Team] = (), usages: Iterable[DepartmentUsage] = ()) -> None:
        self._chains = {team.name: team.departments[::-1] for team in teams if team.departments}  # the highest first
        self._within = {
            each.department.name for each in usages if each.total - each.waiting <= each.department.gpus.guaranteed
        }
        self._costs: dict[DepartmentName | None, Mapping[TeamName, int]] = {}

    def home(self, team: TeamName) -> DepartmentName | None:
        """Return the department of a team: beneficiaries with the same one see the same costs."""
        chain = self._chains.get(team)
        return None if chain is None else chain[-1].name

    def costs(self, beneficiary: TeamName) -> Mapping[TeamName, int]:
        """Return what a GPU unit of each team costs; 0 for teams that are not named."""
        if not self._chains:
            return _NONE
        home = self.home(beneficiary)
        found = self._costs.get(home)
        if found is None:
            found = self._costs[home] = self._costs_for(self._chains.get(beneficiary, ()))
        return found

    def _costs_for(self, own: tuple[Department, ...]) -> Mapping[TeamName, int]:
        classes = {team: self._class(chain, own) for team, chain in self._chains.items()}
        ranks = {each: rank for rank, each in enumerate(sorted({((), 0), *classes.values()}))}
        return {team: _STEP ** (rank - 1) for team, each in classes.items() if (rank := ranks[each])}

    def _class(self, chain: tuple[Department, ...], own: tuple[Department, ...]) -> tuple[tuple[bool, ...], int]:
        """Return how late a team's borrowers go: by the departments on its side, then by those in common."""
        common = 0
        while common < min(len(chain), len(own)) and chain[common].name == own[common].name:
            common += 1
        within = [each.name in self._within for each in chain[common:]]
        while within and not within[-1]:
            within.pop()
        return tuple(within), common


# The input and the result of a round of planning.


NO_NODES: Final[Mapping[Uid, tuple[NodeName, ...]]] = MappingProxyType({})


class NoPlan(StrEnum):
    """Why nothing is evicted for a waiting pod."""

    FITS = "Fits"
    NO_NODE = "NoNode"
    TOPOLOGY_UNMET = "TopologyUnmet"
    NOT_ENOUGH_VICTIMS = "NotEnoughVictims"
    LIMITS_FULL = "LimitsFull"
    GANG_INCOMPLETE = "GangIncomplete"
    NOT_FOR_ROOM = "NotForRoom"
    NO_DOMAIN = "NoDomain"
    ROOM_REFUSED = "RoomRefused"
    NO_EFFECT = "NoEffect"


class Move(NamedTuple):
    """A waiting pod, its future node, and its victims: none, where pods that end free the room.

    `is_past_budgets`: it has waited so long that the victims' PodDisruptionBudgets no longer count.
    `breaks_workloads`: every possible choice makes a workload fail.
    """

    waiting: ReclaimPod
    node: NodeName
    victims: tuple[Victim, ...]
    cost: VictimCost
    is_past_budgets: bool = False
    breaks_workloads: bool = False


class NotPlanned(NamedTuple):
    """A waiting pod for which nothing is done."""

    waiting: ReclaimPod
    cause: NoPlan


class Round(NamedTuple):
    """What one round does, and the pods for which it does nothing.

    `unseen` are the nodes that look free to a pod and are closed to it, by its scheduler's own report.
    """

    moves: tuple[Move, ...]
    refused: tuple[NotPlanned, ...]
    unseen: Mapping[Uid, tuple[NodeName, ...]] = NO_NODES


class Hold(NamedTuple):
    """Room on a node that is held for a waiting pod already."""

    waiting: ReclaimPod
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSnapshot:
    """The input of a round.

    `over_share` is how many GPU units each team holds beyond its guaranteed share; `left` how many victims each guard
    still allows, none where it is not named; `quotas` how many pods each team may still lose now, where that is
    bounded. `spared` are victims that must not be evicted now, `refused` those that the API server does not evict now.
    On nodes with `holds` no room counts as free for other pods: a taint keeps it, and a pod that gets some of it needs
    the toleration. `pod_counts` are the pods on nodes, leaving ones included, since they may stay for a while.
    `idle` are victims that do not use their GPUs and go first by policy. `budget_seconds` and `minimum_runtime` are the
    policy's. `department_order` orders victims by their departments.
    `levels` are those of the policy's domains, and `group_domains` the domains that PodGroups ask for. `sharing` says
    which pods share devices. `closed_to` returns the nodes that reject a pod, `keeping` those with places for
    moved pods. `minimums` are the replicas that workloads are to keep. `refused_nodes` says which nodes look free to a
    pod that its scheduler finds no room for.
    """

    fleet: Fleet
    victim_index: VictimIndex
    now: int
    over_share: Mapping[TeamName, Units] = field(default_factory=dict)
    left: Mapping[GuardId, int] = field(default_factory=dict)
    quotas: Mapping[TeamName, int] = field(default_factory=dict)
    holds: Sequence[Hold] = ()
    leaving: Sequence[ReclaimPod] = ()
    order: tuple[ReclaimCost, ...] = tuple(ReclaimCost)
    spared: Set[Uid] = frozenset()
    refused: Set[Uid] = frozenset()
    pod_counts: PodCounts = field(default_factory=PodCounts)
    budget_seconds: Limit = UNLIMITED
    minimum_runtime: int = 0
    failures: Mapping[WorkloadId, Remaining] = field(default_factory=dict)
    department_order: DepartmentOrder = field(default_factory=DepartmentOrder)
    idle: Set[Uid] = frozenset()
    levels: tuple[str, ...] = ()
    sharing: Sharing = NO_SHARING
    group_domains: Mapping[GangId, DomainRequest] = field(default_factory=dict)
    closed_to: Callable[[ReclaimPod], int] = lambda _: 0
    keeping: int = 0
    minimums: Minimums = field(default_factory=Minimums)
    refused_nodes: RefusedNodes = field(default_factory=RefusedNodes)


# What a waiting pod may override of the protections of victims, and from when on.


class Overrides(NamedTuple):
    """Protections of victims that a pod overrides after a long wait.

    Disruption budgets, once it has waited as long as policy respects them. And the minimum runtime of pods that started
    after it began to wait (`no_minimum_after`): otherwise users who delete pods and create them again would be
    protected forever. `may_break`: failure budgets do not count, since no other choice is left: otherwise a small
    budget would always protect. Pods of the teams `outside` are not evicted, whatever is overridden.
    """

    is_past_budgets: bool = False
    no_minimum_after: int | None = None
    may_break: bool = False
    outside: frozenset[TeamName] = frozenset()


NO_OVERRIDES: Final = Overrides()


def overrides_of(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> Iterator[Overrides]:
    """Yield what a pod may override, the least first: the next is tried where nothing is found."""
    yield NO_OVERRIDES
    how = _long_wait(waiting, snapshot)
    if how is not NO_OVERRIDES:
        yield how
    if snapshot.failures:
        yield NO_OVERRIDES._replace(may_break=True)
        if how is not NO_OVERRIDES:
            yield how._replace(may_break=True)


def waits_past_budgets(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> bool:
    """Whether a pod has waited so long that no disruption budget need allow an eviction for it.

    Also where its victims are covered by none yet: their owner may create one during each notice.
    """
    since, bound = 0 if waiting.report is None else waiting.report.since, snapshot.budget_seconds
    return not isinstance(bound, Unlimited) and bool(since) and since + bound <= snapshot.now


def _long_wait(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> Overrides:
    """Return what a pod may override after its wait."""
    since = 0 if waiting.report is None else waiting.report.since
    is_past_budgets = bool(snapshot.left or snapshot.refused) and waits_past_budgets(waiting, snapshot)
    no_minimum_after = since if snapshot.minimum_runtime and since else None
    return (
        Overrides(is_past_budgets, no_minimum_after)
        if is_past_budgets or no_minimum_after is not None
        else NO_OVERRIDES
    )
