"""What a round of reclaim is planned from, and what comes of it."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from webhook.core.model.amount import UNLIMITED, Limit, Units
from webhook.core.model.demand import Demand
from webhook.core.model.names import Namespace, NodeName, TeamName, Uid
from webhook.core.model.pod import NO_KEYS
from webhook.core.model.policy import ReclaimCost
from webhook.core.model.selector import Constraints
from webhook.core.model.topology import AffinityRule, TopologyRule, anti_affinity
from webhook.core.peers.pod_counts import PodCounts
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.failures import Remaining, WorkloadId
from webhook.core.reclaim.victim import GangId, GuardId, Victim, VictimIndex
from webhook.core.reclaim.victim_search import Cost


class Waiting(NamedTuple):
    """A guaranteed pod without a node. `since` is when it was created, in seconds of Unix time.

    `chosen` are the nodes that the gate chose for it, the best first: where it will go if there is room. `topology` is
    what it demands of the pods around it. `reported_at` is when kube-scheduler said first that it has no room for it.
    """

    uid: Uid
    namespace: Namespace
    name: str
    team: TeamName
    demand: Demand
    constraints: Constraints
    since: int
    gang: GangId | None = None
    chosen: tuple[NodeName, ...] = ()
    labels: Mapping[str, str] = NO_KEYS
    topology: tuple[TopologyRule, ...] = ()
    reported_at: int = 0

    @property
    def anti_affinity_rules(self) -> tuple[AffinityRule, ...]:
        """Say which other pods it does not bear near it."""
        return anti_affinity(self.topology)


class Cause(StrEnum):
    """Why nothing is evicted for a waiting pod."""

    FITS = "Fits"
    NO_NODE = "NoNode"
    TOPOLOGY_UNMET = "TopologyUnmet"
    NOT_ENOUGH_VICTIMS = "NotEnoughVictims"
    GANG_INCOMPLETE = "GangIncomplete"
    NOT_FOR_ROOM = "NotForRoom"


class Move(NamedTuple):
    """A waiting pod, the node that will have its room, and who goes for it: nobody, where room is on its way.

    `is_past_budgets`: it has waited so long that the victims' PodDisruptionBudgets do not count any more.
    `breaks_workloads`: no other choice was left than one by which a workload fails.
    """

    waiting: Waiting
    node: NodeName
    victims: tuple[Victim, ...]
    cost: Cost
    is_past_budgets: bool = False
    breaks_workloads: bool = False


class Refused(NamedTuple):
    """A waiting pod for which nothing is done."""

    waiting: Waiting
    cause: Cause


class Round(NamedTuple):
    """What one round does, and for whom it does nothing."""

    moves: tuple[Move, ...]
    refused: tuple[Refused, ...]


class Hold(NamedTuple):
    """Room on a node that is promised to a waiting pod already."""

    waiting: Uid
    node: NodeName
    demand: Demand
    namespace: Namespace = Namespace("")
    labels: Mapping[str, str] = NO_KEYS
    anti_affinity_rules: tuple[AffinityRule, ...] = ()


class Leaving(NamedTuple):
    """A pod that is on its way out: its room is as good as free."""

    uid: Uid
    node: NodeName
    demand: Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that a round is planned from.

    `over_share` says how many GPU units each team holds beyond its guaranteed share; `left` how many victims each
    guard still lets go: one that is not named lets nobody go; `quotas` how many pods each team may still lose now,
    where that is bounded. `spared` are victims that must not go now, `refused` those that the API server will not
    evict for now. On nodes with `holds` no room counts as free for the others: a taint keeps it, and whoever gets some
    of it must be told so. `siblings` are the pods that are on nodes: those that leave still count among them, since
    they may stay for a while. `budget_seconds` and `minimum_runtime` are what policy says of both.
    """

    fleet: Fleet
    victim_index: VictimIndex
    now: int
    over_share: Mapping[TeamName, Units] = field(default_factory=dict)
    left: Mapping[GuardId, int] = field(default_factory=dict)
    quotas: Mapping[TeamName, int] = field(default_factory=dict)
    holds: Sequence[Hold] = ()
    leaving: Sequence[Leaving] = ()
    order: tuple[ReclaimCost, ...] = tuple(ReclaimCost)
    spared: Set[Uid] = frozenset()
    refused: Set[Uid] = frozenset()
    pod_counts: PodCounts = field(default_factory=PodCounts)
    budget_seconds: Limit = UNLIMITED
    minimum_runtime: int = 0
    failures: Mapping[WorkloadId, Remaining] = field(default_factory=dict)
