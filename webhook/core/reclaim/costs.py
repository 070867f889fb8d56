"""What evictions cost: their parts, lower bounds without a search, and the surplus of workloads."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amounts import (
    GangId,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
    Units,
    WorkloadName,
)
from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.pod import Resident
from webhook.core.model.policy import ReclaimCost
from webhook.core.placement.devices import DeviceSlots
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import NO_SHARING, Among, Sharing, companions
from webhook.core.reclaim.victims import (
    NOWHERE,
    Departure,
    FailureLimits,
    GuardId,
    NodeVictims,
    Victim,
    VictimCost,
    share_used,
)
from webhook.core.world.minimums import Minimums

# Lower bounds of what victims on a node cost, without a search: each part of the cost by itself.


SUMS: Final = 256
"""Sums of GPU units that are looked at for the least surplus: above that there is one for almost any need."""


class CostBounds:
    """Lower bounds for pods of one team, at the time of a snapshot."""

    def __init__(self, snapshot: ReclaimSnapshot, team: TeamName) -> None:
        self._now = snapshot.now
        self._departments = snapshot.department_order.costs(team)
        self._over_share = snapshot.over_share
        self._has_idle = bool(snapshot.idle)
        self._most = max(snapshot.over_share.values(), default=0)
        self._of_teams: dict[Set[TeamName], tuple[Units, Units]] = {}

    def of(self, victims: NodeVictims, gpus: Units) -> VictimCost:
        """Return the least cost of so many GPU units. For several needs on a node it is no less than their sum."""
        largest = 0 if victims.claims else max(victims.sizes, default=0)
        return self._bound(victims, gpus, surplus=0, age=gpus * self._youngest(victims) // largest if largest else 0)

    def of_one(self, victims: NodeVictims, gpus: Units) -> VictimCost:
        """Return the least cost of so many GPU units where no other pod uses what they free beyond it."""
        sizes = {} if victims.claims else victims.sizes
        age = fewest(sizes, gpus) * self._youngest(victims)
        surplus = 0 if victims.workless else least_surplus(sizes, gpus)
        return self._bound(victims, gpus, surplus=surplus, age=age)

    def _youngest(self, victims: NodeVictims) -> int:
        return max(0, self._now - victims.latest)

    def _bound(self, victims: NodeVictims, gpus: Units, *, surplus: Units, age: Units) -> VictimCost:
        factors = self._of_teams.get(victims.teams)
        if factors is None:
            department = _least(self._departments, victims.teams)
            factors = self._of_teams[victims.teams] = (department, self._least_over(victims.teams))
        lost = victims.least_loss(gpus, self._now)
        used = max(0, gpus - victims.idle) if self._has_idle else 0
        return VictimCost(gpus * factors[0], 0, surplus, lost, 0, gpus * factors[1], int(age), used=used)

    def _least_over(self, teams: Set[TeamName]) -> Units:
        return self._most - max((self._over_share.get(team, 0) for team in teams), default=0)


def fewest(sizes: Mapping[Units, int], gpus: Units) -> int:
    """Return how many pods of these sizes free so many GPU units at least, or all of them do."""
    if len(sizes) == 1:
        ((size, count),) = sizes.items()
        return min(count, int(-(-gpus // size))) if size else 0
    found = 0
    for size in sorted(sizes, reverse=True):
        if gpus <= 0:
            break
        used = min(sizes[size], int(-(-gpus // size))) if size else 0
        found, gpus = found + used, gpus - used * size
    return found


def least_surplus(sizes: Mapping[Units, int], gpus: Units) -> Units:
    """Return the least that pods of these sizes free beyond a need; 0 where that is too much to look at."""
    if gpus <= 0:
        return 0
    if len(sizes) == 1:
        ((size, count),) = sizes.items()
        return -gpus % size if size and count * size >= gpus else 0
    sums: set[Units] = {0}
    best: Units | None = None
    for size, count in sizes.items():
        more = {done + size * number for done in sums for number in range(1, count + 1)}
        enough = [done - gpus for done in more if done >= gpus]
        if enough:
            best = min(enough) if best is None else min(best, *enough)
        if best == 0:
            return 0
        sums |= {done for done in more if done < gpus}
        if len(sums) > SUMS:
            return 0
    return best or 0


def _least(costs: Mapping[TeamName, int], teams: Set[TeamName]) -> int:
    return min((costs.get(team, 0) for team in teams), default=0) if costs else 0


# The surplus of workloads that state a minimum: it goes first, from many workloads before one loses more.
#
# A replica of a workload that states a minimum loses no work: its owner says that it may go. Each further one of a
# workload costs more, as a failure does (failures.py), so that workloads lose one each before one loses two. How many
# workloads fall below their minimums counts before all criteria. That never forbids a plan: what is borrowed goes back
# to its owner, whatever a borrower states. All this depends on how many replicas of each workload go, not on which.
#
# An elastic gang loses single members down to its minimum; below that it goes whole, and loses its work.


_NO_COST: Final = VictimCost()
_ALL: Final = -1
"""The count of a gang that went whole."""


class Trim(NamedTuple):
    """Victims of one workload that go together. `is_member`: of a gang, whose others stay; `is_whole`: with all."""

    workload: WorkloadName
    pods: int
    is_member: bool = False
    is_whole: bool = False


class Surplus:
    """What each workload may still lose, during a round."""

    def __init__(self, minimums: Minimums) -> None:
        self._minimums = minimums
        self._taken: Counter[WorkloadName] = Counter()

    def take(self, workload: WorkloadName, count: int) -> None:
        """Count replicas that leave; a negative number undoes it."""
        self._taken[workload] += count

    def spare(self, workload: WorkloadName | None) -> int | None:
        """Return how many replicas a workload may lose; None where it has no minimum that counts."""
        replicas = None if workload is None else self._minimums.of(workload)
        if workload is None or replicas is None or not replicas.has_surplus:
            return None
        return max(0, replicas.spare - self._taken[workload])

    def loses_no_work(self, victim: Victim) -> bool:
        """Whether a victim that goes alone is a replica of a workload with a minimum that counts."""
        return victim.gang is None and self.spare(victim.replica_of) is not None

    def trims(self, victims: Iterable[Victim], *, is_whole: bool = False) -> tuple[Trim, ...]:
        """Return what victims that go together take of workloads with a minimum that counts."""
        numbers = Counter(victim.replica_of for victim in victims if victim.replica_of is not None)
        return tuple(
            [
                Trim(workload, count, is_whole=is_whole)
                for workload, count in numbers.items()
                if self.spare(workload) is not None
            ]
        )

    def covers(self, trims: Iterable[Trim]) -> bool:
        """Whether the surplus is enough for all of them, so that no minimum is touched."""
        return all(trim.pods <= (self.spare(trim.workload) or 0) for trim in trims)

    def draw(self, taken: dict[WorkloadName, int], trims: tuple[Trim, ...]) -> VictimCost | None:
        """Count leaving replicas; return what that costs besides the victims' own cost, None where it cannot be.

        `taken` are those that leave already in the same choice. A gang goes member by member or whole.
        """
        if not trims:
            return _NO_COST
        below = failures = 0
        for workload, pods, is_member, is_whole in trims:
            spare, before = self.spare(workload) or 0, taken.get(workload, 0)
            if is_whole and before == 0:
                taken[workload], below = _ALL, 1
                continue
            after = before + pods
            if before == _ALL or is_whole or (is_member and after > spare):
                return None
            taken[workload] = after
            failures += sum(share_used(spare - number) for number in range(before, after))
            below += before <= spare < after
        return VictimCost(below=below, failures=failures)


def loses_no_work(pod: Resident, minimums: Minimums) -> bool:
    """Whether a pod that was evicted is a ready replica of a workload with a minimum that counts, and of no gang."""
    replicas = minimums.of(pod.replica.workload) if pod.is_ready and pod.gang is None else None
    return replicas is not None and replicas.has_surplus


NO_SURPLUS: Final = Surplus(Minimums())
"""No workload states a minimum."""


# What victims are needed for, and what they cost: the terms of a victim search.


STEPS: Final = 20_000
"""Branches searched in one search before the best so far is taken: rows that all differ could be many."""

_NO_FAILURE_LIMITS: Final = FailureLimits({}, may_break=True)


@dataclass(frozen=True, slots=True)
class Need:
    """What is missing on nodes: amounts above zero, GPU units, and room on single devices of the only node.

    `excluders` must all go: an amount nowhere is their number.
    """

    amounts: Mapping[tuple[NodeName, ResourceName], Units]
    missing_gpus: Units
    per_device: PerDevice | None = None
    excluders: Set[Uid] = frozenset()

    def freed_by(self, demand: Demand, node: NodeName, *, is_excluder: bool = False) -> tuple[Units, ...]:
        """Return how much of each missing amount a pod of this demand frees on its node."""
        requests = dict(demand.requests)
        return tuple(
            [
                int(is_excluder) if place == NOWHERE else requests.get(resource, 0) if place == node else 0
                for place, resource in self.amounts
            ]
        )


@dataclass(slots=True)
class Effort:
    """How many steps searches may still take together: then the best so far counts."""

    left: int = STEPS

    def is_spent(self) -> bool:
        """Count a step; whether there was none left."""
        self.left -= 1
        return self.left < 0


class NodeDevices(Protocol):
    """The single devices of the node."""

    def has_devices(self, ask: PerDevice, gone: Sequence[Victim]) -> bool:
        """Whether they have room for the request once some pods are gone."""
        ...

    def devices_of(self, victim: Victim) -> tuple[int, ...]:
        """Return the devices that a pod uses."""
        ...


@dataclass(frozen=True, slots=True)
class DevicesAfter:
    """The single devices of one node after a plan; implements NodeDevices."""

    device_slots: DeviceSlots
    node: NodeName

    def has_devices(self, ask: PerDevice, gone: Sequence[Victim]) -> bool:
        """Whether they have room for the request once some pods are gone."""
        device_slots = self.device_slots.copy()
        for victim in gone:
            if victim.node == self.node:
                device_slots.release(victim.uid)
        return device_slots.has_room(ask)

    def devices_of(self, victim: Victim) -> tuple[int, ...]:
        """Return the devices that a pod uses."""
        return self.device_slots.devices_held_by(victim.uid)


class _NoDevices:
    """No devices matter; implements NodeDevices."""

    def has_devices(self, _ask: PerDevice, _gone: Sequence[Victim]) -> bool:
        return True

    def devices_of(self, _victim: Victim) -> tuple[int, ...]:
        return ()


NO_DEVICES: Final = _NoDevices()


@dataclass(frozen=True, slots=True)
class CostScale:
    """The inputs of costs: the time, how far each team is over its share, the order of parts, what budgets allow.

    `gone` are those that are evicted already, `spared` those that must not be; teams that are `exhausted` lose no more
    pods for now. `left` is None where budgets do not count. Pods that started after `no_minimum_after` have no minimum
    runtime. `failure_limits` are the workloads' failure budgets, `departments` is what a GPU unit of each team costs
    by its departments. `idle` are those that do not use their GPUs and go first by policy. `surplus` is what workloads
    may lose beyond their minimums, `sharing` says which victims share devices. `groups` are the gangs that were looked
    at in this state.
    """

    now: int
    over_share: Mapping[TeamName, Units]
    order: tuple[ReclaimCost, ...]
    left: Mapping[GuardId, int] | None
    gone: Set[Uid]
    spared: Set[Uid] = frozenset()
    exhausted: Set[TeamName] = frozenset()
    no_minimum_after: int | None = None
    failure_limits: FailureLimits = field(default_factory=lambda: _NO_FAILURE_LIMITS)
    departments: Mapping[TeamName, int] = field(default_factory=dict)
    idle: Set[Uid] = frozenset()
    surplus: Surplus = NO_SURPLUS
    sharing: Sharing = NO_SHARING
    groups: "dict[GangId, Group]" = field(default_factory=dict)

    def may_go(self, victim: Victim) -> bool:
        """Whether a victim is still there and may be evicted, apart from its minimum runtime."""
        return victim.uid not in self.gone and victim.uid not in self.spared and victim.team not in self.exhausted

    def shares(self, victim: Victim) -> bool:
        """Whether other pods use devices of a victim."""
        return victim.demand.own is not None and bool(self.sharing.others(victim.uid))

    def with_companions(self, victims: Sequence[Victim], among: Among) -> tuple[Victim, ...]:
        """Return victims with those that go with them, each with what it frees."""
        return companions(victims, among, self.sharing, gone=self.gone, may_go=self.may_go)

    def is_past_minimum_runtime(self, victim: Victim) -> bool:
        """Whether a victim had its minimum runtime, or is not protected by it."""
        return victim.until <= self.now or (
            self.no_minimum_after is not None and victim.started_at > self.no_minimum_after
        )

    def cost_of(self, victims: Sequence[Victim], *, gangs: int) -> VictimCost:
        """Return what victims cost, without the GPUs beyond the need, and without what their minimums cost."""
        most = max(self.over_share.values(), default=0)
        return VictimCost(
            departments=sum(victim.demand.gpus * self.departments.get(victim.team, 0) for victim in victims)
            if self.departments
            else 0,
            gangs=gangs,
            lost_work=sum(
                victim.demand.gpus * max(0, self.now - victim.saved_at)
                for victim in victims
                if victim.replica_of is None or not self.surplus.loses_no_work(victim)
            ),
            failures=sum(
                share_used(self.failure_limits.left(victim.workload))
                for victim in victims
                if victim.is_counted and victim.workload is not None
            ),
            over_share=sum(victim.demand.gpus * (most - self.over_share.get(victim.team, 0)) for victim in victims),
            age=sum(max(0, self.now - victim.started_at) for victim in victims),
            used=sum(victim.demand.gpus for victim in victims if victim.uid not in self.idle) if self.idle else 0,
        )


class Group(NamedTuple):
    """Victims that go together, by node and all of them, and what they cost: found once in a state, for all nodes.

    `may_go_now`: one of them had its minimum runtime. `sharing` are those of them that hold devices of claims. `trims`
    are the workloads with a minimum that lose them.
    """

    victims: tuple[Victim, ...]
    on: Mapping[NodeName, Sequence[Victim]]
    gpus: Units
    cost: VictimCost
    departures: tuple[Departure, ...]
    guards: tuple[tuple[GuardId, int], ...]
    may_go_now: bool
    sharing: Set[Uid]
    trims: tuple[Trim, ...] = ()
