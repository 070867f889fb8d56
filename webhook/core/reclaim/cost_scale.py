"""What victims are needed for, and what they cost: the terms of a victim search."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.names import GangId, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.policy import ReclaimCost
from webhook.core.placement.device_slots import DeviceSlots
from webhook.core.reclaim.failures import Departure, FailureLimits, share_used
from webhook.core.reclaim.shared_devices import NO_SHARING, Among, Sharing, companions
from webhook.core.reclaim.surplus import NO_SURPLUS, Surplus, Trim
from webhook.core.reclaim.victim import NOWHERE, GuardId, Victim
from webhook.core.reclaim.victim_cost import VictimCost

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
