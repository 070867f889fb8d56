"""Possible victims: what the eviction of each borrowing pod would free and cost, and the budgets that cover it."""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand
from webhook.core.model.names import GangId, Namespace, NodeName, TeamName, Uid, WorkloadName
from webhook.core.reclaim.failures import WorkloadId

GuardId = NewType("GuardId", str)
"""A bound on the number of victims: a PodDisruptionBudget."""

NOWHERE: Final = NodeName("")
"""The node of a victim that has none: it frees limits, and no room."""

NEVER: Final = 1 << 40
"""The start and the last save of a victim that does no work, in seconds of Unix time: later than any time."""


class Victim(NamedTuple):
    """A borrowing pod. Times are seconds of Unix time.

    `saved_at` is its last checkpoint, or its start, less its grace period, while which its GPUs do no work either, and
    less what a request to stay counts. Before `until` its minimum runtime protects it. `guards` are the budgets that
    its eviction counts against. `grace_seconds` overrides its own grace period where that is too long. `workload` is
    set for pods whose controller fails after some failures; `is_counted`: its eviction counts as one. `replica_of` is
    set for ready pods whose workload is to keep some replicas. `is_idle`: it does not use its GPUs.
    """

    uid: Uid
    namespace: Namespace
    name: str
    team: TeamName
    node: NodeName
    demand: Demand
    started_at: int
    saved_at: int
    until: int = 0
    gang: GangId | None = None
    guards: tuple[GuardId, ...] = ()
    grace_seconds: int | None = None
    workload: WorkloadId | None = None
    is_counted: bool = False
    is_idle: bool = False
    replica_of: WorkloadName | None = None

    @property
    def workless(self) -> Units:
        """Its GPU units if it has no work to lose, since none of its containers runs; else 0."""
        return self.demand.gpus if self.saved_at == NEVER else 0

    @property
    def saved_at_best(self) -> int:
        """When its work was saved, or NEVER if it may lose none: as a replica beyond its workload's minimum."""
        return self.saved_at if self.replica_of is None else NEVER


class VictimGroup(NamedTuple):
    """The fields in which single victims on a node are equal, so that they differ only in age."""

    demand: Demand
    team: TeamName
    guards: tuple[GuardId, ...]
    workload: WorkloadId | None = None
    is_counted: bool = False
    replica_of: WorkloadName | None = None
    gang: GangId | None = None


@dataclass(slots=True)
class NodeVictims:
    """The victims on one node: singles in rows of equal ones, the cheapest of a row first, and gangs with members here.

    Members of a gang that has a minimum are in both: it may lose single ones.

    `gpus` are the GPU units of all, `idle` those that are not used, `sizes` how many there are of each size, `latest`
    the start of the youngest, `workless` how many have no work to lose;
    `claims` of them may hold devices of claims, which they free or not by who else goes. The order of a row depends
    neither on the time nor on other usage: the one saved last loses least.
    """

    rows: dict[VictimGroup, list[tuple[tuple[int, int, Uid], Victim]]] = field(default_factory=dict)
    gangs: dict[GangId, int] = field(default_factory=dict)
    saves: list[tuple[int, Units]] = field(
        default_factory=list
    )  # when each was saved, and its GPU units; the newest last
    gpus: Units = 0
    idle: Units = 0
    sizes: dict[Units, int] = field(default_factory=dict)
    latest: int = 0
    claims: int = 0
    workless: int = 0
    teams: frozenset[TeamName] = frozenset()
    _victims: dict[Uid, Victim] = field(default_factory=dict)
    _freed: dict[Units, tuple[Units, Units]] = field(default_factory=dict)

    def least_loss(self, gpus: Units, now: int) -> Units:
        """Return how much work is lost at least to free so many GPU units: those saved last count first, in parts.

        Over time it grows by the GPUs alone, so the saved times are added up once for each number of GPUs.
        """
        freed = self._freed.get(gpus)
        if freed is None:
            freed = self._freed[gpus] = self._free(gpus)
        amount, saved = freed
        return amount * now - saved if self.saves[-1][0] <= now else self._loss_before_now(gpus, now)

    def add(self, victim: Victim) -> None:
        """Add a victim."""
        self._victims[victim.uid] = victim
        insort(self.saves, (victim.saved_at_best, victim.demand.gpus))
        self._count(victim, 1)
        self.latest = max(self.latest, victim.started_at)
        if victim.team not in self.teams:
            self.teams |= {victim.team}

    def remove(self, victim: Victim) -> None:
        """Remove a victim."""
        del self._victims[victim.uid]
        self.saves.remove((victim.saved_at_best, victim.demand.gpus))
        self._count(victim, -1)
        left = self._victims.values()
        self.latest = max((each.started_at for each in left), default=0)
        self.teams = frozenset(each.team for each in left)

    def _count(self, victim: Victim, sign: int) -> None:
        size = victim.demand.gpus
        self.gpus += sign * size
        self.idle += sign * size if victim.is_idle else 0
        self.claims += sign * (victim.demand.own is not None)
        self.workless += sign * bool(victim.workless)
        self.sizes[size] = self.sizes.get(size, 0) + sign
        if not self.sizes[size]:
            del self.sizes[size]
        self._freed.clear()

    def _free(self, gpus: Units) -> tuple[Units, Units]:
        """Return how many GPU units are freed, and the sum of the times at which their work was saved."""
        left: Units = gpus
        saved: Units = 0
        for saved_at, held in reversed(self.saves):
            part = min(held, left)
            left -= part
            saved += part * saved_at
            if not left:
                break
        return gpus - left, saved

    def _loss_before_now(self, gpus: Units, now: int) -> Units:
        """Return the same where a time is in the future, by a wrong clock: none of that work is lost."""
        loss: Units = 0
        for saved_at, held in reversed(self.saves):
            part = min(held, gpus)
            gpus -= part
            loss += part * max(0, now - saved_at)
        return loss


class VictimIndex:
    """All victims, by node and by gang, kept by events."""

    def __init__(self, victims: Iterable[Victim] = ()) -> None:
        self._by_uid: dict[Uid, Victim] = {}
        self._by_node: dict[NodeName, NodeVictims] = {}
        self._gangs: dict[GangId, dict[Uid, Victim]] = {}
        self._workloads: dict[WorkloadId, dict[Uid, Victim]] = {}
        self._idle: dict[Uid, Victim] = {}
        for victim in victims:
            self.add(victim)

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[Victim]:
        return iter(self._by_uid.values())

    def get(self, uid: Uid) -> Victim | None:
        """Return a victim."""
        return self._by_uid.get(uid)

    def idle(self) -> Iterable[Victim]:
        """Return the victims that do not use their GPUs."""
        return self._idle.values()

    def on(self, node: NodeName) -> NodeVictims | None:
        """Return the victims on a node; None where there are none."""
        return self._by_node.get(node)

    def members(self, gang: GangId) -> list[Victim]:
        """Return a gang on all nodes, in the order of UIDs."""
        return [victim for _, victim in sorted(self._gangs[gang].items())]

    def of_workload(self, workload: WorkloadId) -> list[Victim]:
        """Return the victims of a workload on all nodes, in the order of UIDs."""
        return [victim for _, victim in sorted(self._workloads.get(workload, {}).items())]

    def workloads(self) -> Iterable[WorkloadId]:
        """Return the workloads that have victims."""
        return self._workloads.keys()

    def gangs_on(self, node: NodeName) -> list[GangId]:
        """Return the gangs with a member on a node, in the order of their names."""
        node_victims = self._by_node.get(node)
        return [] if node_victims is None else sorted(node_victims.gangs)

    def add(self, victim: Victim) -> None:
        """Add a pod that may be evicted, or what changed of it."""
        self.remove(victim.uid)
        self._by_uid[victim.uid] = victim
        if victim.is_idle:
            self._idle[victim.uid] = victim
        if victim.workload is not None:
            self._workloads.setdefault(victim.workload, {})[victim.uid] = victim
        if victim.gang is not None:
            self._gangs.setdefault(victim.gang, {})[victim.uid] = victim
        if victim.node != NOWHERE:
            self._add_to_node(victim)

    def remove(self, uid: Uid) -> None:
        """Remove a pod that ended or no longer borrows."""
        victim = self._by_uid.pop(uid, None)
        if victim is None:
            return
        self._idle.pop(uid, None)
        if victim.node != NOWHERE:
            self._remove_from_node(victim)
        if victim.workload is not None:
            del self._workloads[victim.workload][uid]
            if not self._workloads[victim.workload]:
                del self._workloads[victim.workload]
        if victim.gang is not None:
            del self._gangs[victim.gang][uid]
            if not self._gangs[victim.gang]:
                del self._gangs[victim.gang]

    def _add_to_node(self, victim: Victim) -> None:
        node_victims = self._by_node.get(victim.node)
        if node_victims is None:
            node_victims = self._by_node[victim.node] = NodeVictims()
        node_victims.add(victim)
        if _is_in_row(victim):
            insort(node_victims.rows.setdefault(_alike(victim), []), (_order(victim), victim))
        if victim.gang is not None:
            node_victims.gangs[victim.gang] = node_victims.gangs.get(victim.gang, 0) + 1

    def _remove_from_node(self, victim: Victim) -> None:
        node_victims = self._by_node[victim.node]
        node_victims.remove(victim)
        if _is_in_row(victim):
            row = node_victims.rows[_alike(victim)]
            row.remove((_order(victim), victim))
            if not row:
                del node_victims.rows[_alike(victim)]
        if victim.gang is not None:
            node_victims.gangs[victim.gang] -= 1
            if not node_victims.gangs[victim.gang]:
                del node_victims.gangs[victim.gang]
        if not node_victims.rows and not node_victims.gangs:
            del self._by_node[victim.node]


def _alike(victim: Victim) -> VictimGroup:
    return VictimGroup(
        victim.demand,
        victim.team,
        victim.guards,
        victim.workload,
        victim.is_counted,
        victim.replica_of,
        victim.gang,
    )


def _is_in_row(victim: Victim) -> bool:
    return victim.gang is None or victim.replica_of is not None


def _order(victim: Victim) -> tuple[int, int, Uid]:
    return -victim.saved_at, -victim.started_at, victim.uid
