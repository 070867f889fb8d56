"""The input and the result of a round of planning."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.model.amount import UNLIMITED, Limit, Units
from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.names import GangId, NodeName, TeamName, Uid
from webhook.core.model.policy import ReclaimCost
from webhook.core.peers.pod_counts import PodCounts
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.department_order import DepartmentOrder
from webhook.core.reclaim.failures import Remaining, WorkloadId
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.refused_nodes import RefusedNodes
from webhook.core.reclaim.shared_devices import NO_SHARING, Sharing
from webhook.core.reclaim.victim import GuardId, Victim, VictimIndex
from webhook.core.reclaim.victim_cost import VictimCost
from webhook.core.world.minimums import Minimums

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
