"""The fleet's GPUs by resource: classes of nodes and rankings by shape of pod, under the demand mix of the moment.

When the mix has moved, or many classes have come up, a resource is looked at anew: one pass over its nodes.
"""

from collections import Counter
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.names import CPU, MEMORY, GpuModel, NodeName, ResourceName
from webhook.core.model.node import Devices, Node
from webhook.core.model.tier import Tier
from webhook.core.placement.demand_mix import DemandMix, Shape, resource_of, shape_of
from webhook.core.placement.device_slots import DeviceSlots
from webhook.core.placement.device_states import DeviceStates
from webhook.core.placement.fragmentation import WHOLE, Fragmentation, State
from webhook.core.placement.node_classes import Kind, NodeClasses
from webhook.core.placement.scarcity import Able, Scarcity
from webhook.core.placement.score import Ranking, Scale
from webhook.core.placement.slot_index import AmountIndex
from webhook.core.placement.tier_mix import TierMix

_KEPT_ASKED: Final = 1024
"""Requests with a ranking: a fleet's templates have a few dozen, and those of a size share one."""

_KEPT_CLASSES: Final = 50_000

_TURNOVER: Final = 16
"""A resource is looked at anew when one in so many nodes came, went or changed in size."""


_Asked = tuple[tuple[tuple[ResourceName, int], ...], PerDevice | None, bool]


class GpuView:
    """One GPU resource: its classes, and their rankings."""

    __slots__ = ("_by_asked", "_rankings", "changed", "classes", "fragmentation", "scale", "scarcity", "version")

    def __init__(self, fragmentation: Fragmentation, scale: Scale, scarcity: Scarcity, version: int) -> None:
        self.fragmentation, self.version = fragmentation, version
        self.classes = NodeClasses(fragmentation, DeviceStates(fragmentation), scarcity)
        self.scale = scale
        self.changed = 0  # nodes that came, went or changed in size since this was made
        self.scarcity = scarcity
        self._rankings: dict[tuple[Shape, Tier], Ranking] = {}
        self._by_asked: dict[_Asked, Ranking] = {}

    def ranking(self, demand: Demand, resource: ResourceName, tier: Tier) -> Ranking:
        """Rank the classes for a pod."""
        asked = demand.requests, demand.per_device, tier is Tier.GUARANTEED  # a member of an enum is slow to hash
        ranking = self._by_asked.get(asked)
        if ranking is None:
            if len(self._by_asked) >= _KEPT_ASKED:
                self._by_asked.clear()
                self._rankings.clear()
            shape = self.fragmentation.rounded(shape_of(demand.requests, resource, demand.per_device))
            if (shape, tier) not in self._rankings:
                self._rankings[shape, tier] = Ranking(
                    shape, tier, self.fragmentation, self.classes, self.scale, entitled=self.scarcity.entitled(shape)
                )
            ranking = self._by_asked[asked] = self._rankings[shape, tier]
            ranking.widen(dict(demand.requests).get(CPU, 0))
        ranking.take_in()
        return ranking

    def kept(self, ranking: Ranking, pods: int, among: int) -> int:
        """Tell the groups of scarce sizes whose nodes other pods take last: too few of them are left."""
        found = 0
        for number, group in enumerate(self.scarcity.groups):
            if not ranking.entitled >> number & 1:
                is_short = (self.classes.able[number] & among).bit_count() <= group.kept(pods)
                found |= is_short << number
        return found


class Sort(NamedTuple):
    """Devices that are counted together; `is_packed` where parts of them are handed out."""

    model: GpuModel
    resource: ResourceName
    is_packed: bool


class Number(NamedTuple):
    """How many devices nodes have, and how many of them are on closed nodes."""

    devices: int = 0
    closed: int = 0


class Gpus:
    """All GPU resources of a fleet. It reads the fleet's own indexes of free amounts and of single devices."""

    def __init__(
        self,
        demand_mix: DemandMix,
        free: dict[ResourceName, AmountIndex],
        device_slots: dict[NodeName, DeviceSlots],
        company: TierMix,
    ) -> None:
        self.demand_mix = demand_mix
        self.tracked: dict[ResourceName, None] = {}
        self.bits = 0  # slots of nodes with any of these resources
        self.numbers: dict[Sort, Number] = {}
        self._free, self._bays, self._company = free, device_slots, company
        self._nodes: dict[int, Node] = {}
        self._of_slot: dict[int, tuple[ResourceName, ...]] = {}
        self._views: dict[ResourceName, GpuView] = {}

    def track(self, resource: ResourceName) -> None:
        """Look at a resource from now on."""
        if resource not in self.tracked:
            self.tracked[resource] = None
            for slot, node in list(self._nodes.items()):
                self.set(slot, node)

    def set(self, slot: int, node: Node) -> None:
        """Take in a node, or what changed of it; one that offers nothing leaves."""
        packed = node.devices.resource
        offered = [
            name
            for name, amount in node.allocatable.items()
            if amount > 0 and name in self.tracked and node.rooms.get(name) not in self.tracked
        ]
        now = tuple([name for name in offered if name != packed] + ([packed] if node.devices.capacities else []))
        self._count(slot, -1)
        before = self._nodes.get(slot)
        had = self._of_slot.pop(slot, ())
        for resource in had:
            if resource not in now and resource in self._views:
                self._views[resource].classes.drop(slot, 1 << slot)
        if before is None or before.allocatable != node.allocatable:
            for resource in {*had, *now} & self._views.keys():
                self._views[resource].changed += 1
        self.bits = self.bits | 1 << slot if now else self.bits & ~(1 << slot)
        self._nodes[slot] = node
        self._of_slot[slot] = now
        self._count(slot, 1)
        for resource in now:
            view = self._views.get(resource)
            if view is not None and not view.scale.covers(self._scale(resource, [slot])):
                del self._views[resource]
        self.settle(slot)

    def remove(self, slot: int) -> None:
        """Drop a node."""
        self.set(slot, Node(NodeName(""), {}))
        del self._nodes[slot], self._of_slot[slot]

    def settle(self, slot: int) -> None:
        """Bring the class of a node up to date: something came there or went."""
        for resource in self._of_slot[slot]:
            view = self._views.get(resource)
            if view is not None:
                view.classes.change(slot, 1 << slot, self._kind(slot, resource, view.fragmentation))

    def resource_for(self, demand: Demand) -> ResourceName | None:
        """Name the resource by whose classes a pod is placed: its own, or the first there is if it asks for none."""
        return resource_of(demand) or next((offered[0] for offered in self._of_slot.values() if offered), None)

    def view(self, resource: ResourceName) -> GpuView:
        """Give a resource's classes and rankings under the present mix."""
        view = self._views.get(resource)
        if view is None or self._is_old(view):
            members = [slot for slot, offered in self._of_slot.items() if resource in offered]
            fragmentation = Fragmentation(self.demand_mix.expected(resource))
            scarcity = Scarcity(fragmentation, Counter(self._able(slot, resource, fragmentation) for slot in members))
            scale = self._scale(resource, members)
            view = self._views[resource] = GpuView(fragmentation, scale, scarcity, self.demand_mix.version)
            for slot in members:
                view.classes.change(slot, 1 << slot, self._kind(slot, resource, fragmentation))
        return view

    def kept(self, ranking: Ranking, resource: ResourceName, among: int) -> int:
        """Tell the groups of scarce sizes whose nodes a pod takes last."""
        return self._views[resource].kept(ranking, self._company.pods.get(resource, 0), among)

    def _is_old(self, view: GpuView) -> bool:
        return (
            view.version != self.demand_mix.version
            or view.classes.came_up > _KEPT_CLASSES + 8 * len(self._nodes)
            or view.changed * _TURNOVER > len(self._nodes)
        )

    def _able(self, slot: int, resource: ResourceName, fragmentation: Fragmentation) -> Able:
        """Tell what a node has when it is empty."""
        node = self._nodes[slot]
        cpu = fragmentation.cpu.fitting(node.allocatable.get(CPU, 0))
        memory = fragmentation.memory.fitting(node.allocatable.get(MEMORY, 0))
        size = _layout(node.devices).size if resource == node.devices.resource else 1
        return Able(State(_devices(node, resource), size=size), cpu, memory)

    def latest(self, resource: ResourceName) -> GpuView:
        """Give a view as it was last made: under a mix that may have moved since, and without a pass over the nodes."""
        return self._views.get(resource) or self.view(resource)

    def _count(self, slot: int, sign: int) -> None:
        """Count what a node has, or take it out of the count."""
        for resource in self._of_slot.get(slot, ()):
            node = self._nodes[slot]
            sort = Sort(node.model, resource, resource == node.devices.resource)
            devices, number = sign * _devices(node, resource), self.numbers.get(sort, Number())
            number = Number(number.devices + devices, number.closed + (0 if node.is_open else devices))
            if number.devices:
                self.numbers[sort] = number
            else:
                self.numbers.pop(sort, None)  # not there where a node's devices are all gone

    def _scale(self, resource: ResourceName, members: list[int]) -> Scale:
        nodes = [self._nodes[slot] for slot in members]
        return Scale(
            max([1, *(_devices(node, resource) for node in nodes)]),
            max([1, *(node.allocatable.get(CPU, 0) for node in nodes)]),
        )

    def _kind(self, slot: int, resource: ResourceName, fragmentation: Fragmentation) -> Kind:
        node, free = self._nodes[slot], self._free
        if resource == node.devices.resource:
            state = _packed(self._bays[node.name])
        else:
            state = _plain(free[resource].held(slot))
        capacity = _devices(node, resource)
        cpu, memory = free.get(CPU), free.get(MEMORY)
        return Kind(
            state,
            0 if cpu is None else fragmentation.cpu.mark(cpu.held(slot)),
            0 if memory is None else fragmentation.memory.mark(memory.held(slot)),
            capacity if state.whole == capacity else 0,  # 0 as well where all devices are gone
            self._company.on(node.name, resource),
        )


@lru_cache(maxsize=1024)
def _plain(free: int) -> State:
    return State(max(0, free))


def _devices(node: Node, resource: ResourceName) -> int:
    return _layout(node.devices).number if resource == node.devices.resource else node.allocatable[resource]


class _Layout(NamedTuple):
    """How many devices a node has that hand out parts, and how many pieces the largest has."""

    number: int
    size: int


@lru_cache(maxsize=1024)  # asked for at every change of a node, and a fleet has a few dozen
def _layout(devices: Devices) -> _Layout:
    return _Layout(sum(capacity > 0 for capacity in devices.capacities), max(1, *devices.capacities))


def _packed(device_slots: DeviceSlots) -> State:
    whole, partly = 0, []
    for left, capacity in zip(device_slots.free, device_slots.devices.capacities, strict=True):
        if left == capacity:
            whole += capacity > 0
        elif left > 0:
            partly.append(left * WHOLE // capacity)
    partly.sort()
    return State(whole, tuple(partly), _layout(device_slots.devices).size)
