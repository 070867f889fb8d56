"""Possible victims by node; failures that workloads tolerate.

Workloads that count failed pods: how many more evictions each of them survives.

A Job fails, with all of its pods, once more of them failed than its backoffLimit allows; its guaranteed pods end then
as well. Reclaim does not use the last failure of such a budget, unless all of the workload's pods are evicted together.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import add
from typing import Final, NamedTuple, NewType

from webhook.core.model.amounts import GangId, Namespace, NodeName, TeamName, Uid, Units, WorkloadName
from webhook.core.model.demand import Demand
from webhook.core.model.policy import ReclaimCost

WorkloadId = NewType("WorkloadId", str)
"""The object that controls pods and counts their failures: its namespace and UID, so none of other namespaces."""


class Loss(Enum):
    """The effect of a pod's eviction on its controller.

    COUNTED: it counts as a failure, if the controller has a budget for them. FATAL: the workload fails with it.
    HARMLESS: it never counts, though other pods of the same workload are FATAL.
    """

    COUNTED = auto()
    FATAL = auto()
    HARMLESS = auto()


class FailureBudget(NamedTuple):
    """How many failed pods a workload survives, and how many it has counted already."""

    limit: int
    failed: int = 0


class Remaining(NamedTuple):
    """What is left of a workload's failure budget, and how many of its pods exist and do not leave."""

    left: int
    pods: int


NOTHING_LEFT: Final = Remaining(0, 0)
_WHOLE: Final = 1000


def share_used(left: int) -> int:
    """Return what one more failure costs a workload: the share of its remaining budget, in thousandths."""
    return _WHOLE // (max(0, left) + 1)


class Departure(NamedTuple):
    """Pods of one workload that leave together: how many there are, and how many of them count as failures."""

    workload: WorkloadId
    pods: int
    counted: int


class FailureLimits:
    """The failure budgets during one search: which evictions they still allow.

    With `may_break` a workload may fail. Then each one that does is returned, since it costs as much as a broken gang.
    """

    __slots__ = ("_may_break", "_remaining")

    def __init__(self, remaining: Mapping[WorkloadId, Remaining], *, may_break: bool) -> None:
        self._remaining = remaining
        self._may_break = may_break

    def draw(self, left: dict[WorkloadId, int], departures: tuple[Departure, ...]) -> int | None:
        """Count leaving pods against the budgets; return how many workloads fail by it, None where that is forbidden.

        A workload all of whose pods leave has no budget to keep: that is allowed, unless some of it left before.
        """
        broken = 0
        for departure in departures:
            workload, pods, counted = departure
            remaining = self._remaining.get(workload, NOTHING_LEFT)
            before = left.get(workload, remaining.left)
            if pods >= remaining.pods:
                if before != remaining.left and not self._may_break:
                    return None
                left[workload] = min(before, 0)
                continue
            after = left[workload] = before - counted
            if counted and after < 0:
                if not self._may_break:
                    return None
                broken += before >= 0
        return broken

    def left(self, workload: WorkloadId) -> int:
        """Return how many failures a workload survives from here."""
        return self._remaining.get(workload, NOTHING_LEFT).left

    def singles(self, workload: WorkloadId | None) -> int | None:
        """Return how many pods of a workload may leave one by one; None: any number."""
        remaining = None if workload is None or self._may_break else self._remaining.get(workload)
        if remaining is None:
            return None
        return max(remaining.left, 1 if remaining.pods <= 1 else 0)

    def pods(self, workload: WorkloadId) -> int:
        """Return how many pods of a workload exist and do not leave."""
        return self._remaining.get(workload, NOTHING_LEFT).pods

    @property
    def may_break(self) -> bool:
        """Whether a workload may fail."""
        return self._may_break


# Possible victims: what the eviction of each borrowing pod would free and cost, and the budgets that cover it.


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


# The cost of a choice of victims. Each criterion of the policy is the field of its name, so none ranks by another.


class VictimCost(NamedTuple):
    """What victims cost: each part exact and never negative, and the parts of several victims add up.

    `gangs` are those that lose pods whose room is not needed, and workloads that fail. `surplus` is in GPU units beyond
    the need, of pods that have work to lose, `lost_work` in GPU units times seconds since the last save, `failures` in
    thousandths of what the victims' workloads may still fail, `over_share` in GPU units squared (the further the
    victims' teams are over their shares, the less), `age` in seconds. `departments` is how late the victims'
    departments go (`DepartmentOrder`), `below` how many workloads fall below their minimums (`Surplus`), `used` how
    many GPU units victims use, where others are idle and go first by policy; all three come before the criteria, in
    the policy's order.
    """

    departments: Units = 0
    gangs: int = 0
    surplus: Units = 0
    lost_work: Units = 0
    failures: int = 0
    over_share: Units = 0
    age: int = 0
    below: int = 0
    used: Units = 0

    def ranked(self, order: Sequence[ReclaimCost]) -> tuple[Units, ...]:
        """Return the parts in the order in which they count."""
        return (self.departments, self.below, self.used, *[self[_POSITION[criterion]] for criterion in order])

    def plus(self, other: "VictimCost") -> "VictimCost":
        """Return the cost of both."""
        return VictimCost._make(map(add, self, other))

    @classmethod
    def total(cls, costs: Iterable["VictimCost"]) -> "VictimCost":
        """Return the cost of all together."""
        return cls._make(map(sum, zip(cls(), *costs, strict=True)))


BEFORE_CRITERIA: Final = 3
"""How many parts of a rank come before those of the criteria: departments, workloads below their minimums, and what is
used."""

_POSITION: Final = {criterion: VictimCost._fields.index(criterion.name.lower()) for criterion in ReclaimCost}
"""Where each criterion is: a criterion without a field of its name ends the import."""
