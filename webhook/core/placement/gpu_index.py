"""The GPUs of all nodes by resource: node classes and rankings by pod shape, under the present demand mix.

When the mix has changed, or many classes were created, a resource is indexed again: one pass over its nodes.
"""

from collections import Counter
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.core.model.amounts import CPU, MEMORY, GpuModel, NodeName, ResourceName
from webhook.core.model.constraints import Tier
from webhook.core.model.demand import Demand, PerDevice, Shape
from webhook.core.model.node import Devices, Node
from webhook.core.placement.devices import AmountIndex, DeviceSlots, DeviceStates
from webhook.core.placement.fragmentation import (
    WHOLE,
    DemandMix,
    DeviceState,
    Fragmentation,
    NodeRoom,
    Scarcity,
    TierMix,
    resource_of,
    shape_of,
)
from webhook.core.placement.score import SPARE_RANKS, NodeClasses, NodeClassKey, Ranking, Scale

_MAX_REQUESTS: Final = 1024
"""Requests with a ranking: a cluster's templates have a few dozen, and those of one size share one."""

_MAX_CLASSES: Final = 4096
_MAX_CLASSES_PER_NODE: Final = 4
"""Classes created before a resource is indexed again, those without members included: each is some 400 bytes."""

MAX_RANKED: Final = 1 << 18
"""Classes in all rankings of a resource together, some 40 MB. Beyond that the rankings that were not used for longest
are dropped: a tenant may ask for a thousand sizes, and each takes a rank of every class."""

_CHECK_AFTER: Final = 256
"""Classes that get members before the rankings are counted again."""

_CHANGED_FRACTION: Final = 16
"""A resource is indexed again when one in so many nodes came, left or changed in size."""


_RequestKey = tuple[tuple[tuple[ResourceName, int], ...], PerDevice | None, bool]


class GpuView:
    """One GPU resource: its node classes and their rankings."""

    __slots__ = (
        "_by_request",
        "_check_at",
        "_rankings",
        "changed",
        "classes",
        "fragmentation",
        "scale",
        "scarcity",
        "version",
    )

    def __init__(self, fragmentation: Fragmentation, scale: Scale, scarcity: Scarcity, version: int) -> None:
        self.fragmentation, self.version = fragmentation, version
        self.classes = NodeClasses(fragmentation, DeviceStates(fragmentation), scarcity)
        self.scale = scale
        self.changed = 0  # nodes that came, left or changed in size since this view was made
        self.scarcity = scarcity
        self._rankings: dict[tuple[Shape, Tier], Ranking] = {}
        self._by_request: dict[_RequestKey, Ranking] = {}
        self._check_at = _CHECK_AFTER

    @property
    def ranked(self) -> int:
        """The number of classes in all rankings, which is what they need memory for."""
        return sum(ranking.size for ranking in self._rankings.values())

    def ranking(self, demand: Demand, resource: ResourceName, tier: Tier) -> Ranking:
        """Return the ranking of the classes for a pod."""
        request = demand.requests, demand.per_device, tier is Tier.GUARANTEED  # hashing an enum member is slow
        ranking = self._by_request.get(request)
        if ranking is None or self.classes.filled >= self._check_at:
            self._drop_unused_rankings()
        if ranking is None:
            if len(self._by_request) >= _MAX_REQUESTS:
                self._by_request.clear()
                self._rankings.clear()
            shape = self.fragmentation.rounded(shape_of(demand.requests, resource, demand.per_device))
            if (shape, tier) not in self._rankings:
                self._rankings[shape, tier] = Ranking(
                    shape, tier, self.fragmentation, self.classes, self.scale, entitled=self.scarcity.entitled(shape)
                )
            ranking = self._by_request[request] = self._rankings[shape, tier]
            ranking.widen(dict(demand.requests).get(CPU, 0))
        ranking.add_new_classes()
        return ranking

    def _drop_unused_rankings(self) -> None:
        """Drop the rankings that were not used for longest where all together are too large."""
        self._check_at = self.classes.filled + _CHECK_AFTER
        if len(self._rankings) * 2 * (self.classes.live.bit_count() + SPARE_RANKS) <= MAX_RANKED:
            return  # counting takes longer
        ranked = self.ranked
        if ranked <= MAX_RANKED:
            return
        for key, ranking in sorted(self._rankings.items(), key=lambda each: each[1].used_at):
            if ranked <= MAX_RANKED // 2:
                break
            ranked -= ranking.size
            del self._rankings[key]
        kept = set(map(id, self._rankings.values()))
        self._by_request = {request: each for request, each in self._by_request.items() if id(each) in kept}

    def reserved_groups(self, ranking: Ranking, pods: int, among: int) -> int:
        """Return the groups of scarce sizes whose nodes other pods take last: too few of these nodes are left."""
        found = 0
        for number, group in enumerate(self.scarcity.groups):
            if not ranking.entitled >> number & 1:
                is_short = (self.classes.slots_with_room[number] & among).bit_count() <= group.reserved_nodes(pods)
                found |= is_short << number
        return found


class GpuGroup(NamedTuple):
    """The key of devices that are counted together; `is_packed` where they are shared in parts.

    `piece` is the slice that `nvidia.com/gpu` is on their nodes, None where it is a whole GPU.
    """

    model: GpuModel
    resource: ResourceName
    is_packed: bool
    piece: ResourceName | None = None


class GpuCount(NamedTuple):
    """How many devices nodes have, and how many of them are on closed nodes."""

    devices: int = 0
    closed: int = 0


class GpuIndex:
    """All GPU resources of the nodes. It reads the fleet's own indexes of free amounts and of single devices."""

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
        self.numbers: dict[GpuGroup, GpuCount] = {}
        self._free, self._device_slots, self._tier_mix = free, device_slots, company
        self._nodes: dict[int, Node] = {}
        self._of_slot: dict[int, tuple[ResourceName, ...]] = {}
        self._views: dict[ResourceName, GpuView] = {}

    def track(self, resource: ResourceName) -> None:
        """Index a resource from now on."""
        if resource not in self.tracked:
            self.tracked[resource] = None
            for slot, node in list(self._nodes.items()):
                self.set(slot, node)

    def set(self, slot: int, node: Node) -> None:
        """Add or update a node; a node without such devices is dropped from the classes."""
        packed = node.devices.resource
        offered = [
            name
            for name, amount in node.allocatable.items()
            if amount > 0 and name in self.tracked and node.alias_of.get(name) not in self.tracked
        ]
        now = tuple([name for name in offered if name != packed] + ([packed] if node.devices.capacities else []))
        self._count(slot, -1)
        before = self._nodes.get(slot)
        previous = self._of_slot.pop(slot, ())
        for resource in previous:
            if resource not in now and resource in self._views:
                self._views[resource].classes.drop(slot, 1 << slot)
        if before is None or before.allocatable != node.allocatable:
            for resource in {*previous, *now} & self._views.keys():
                self._views[resource].changed += 1
        self.bits = self.bits | 1 << slot if now else self.bits & ~(1 << slot)
        self._nodes[slot] = node
        self._of_slot[slot] = now
        self._count(slot, 1)
        for resource in now:
            view = self._views.get(resource)
            if view is not None and not view.scale.covers(self._scale(resource, [slot])):
                del self._views[resource]
        self.rerank(slot)

    def remove(self, slot: int) -> None:
        """Remove a node."""
        self.set(slot, Node(NodeName(""), {}))
        del self._nodes[slot], self._of_slot[slot]

    def rerank(self, slot: int) -> None:
        """Update the class of a node after pods came or left."""
        for resource in self._of_slot[slot]:
            view = self._views.get(resource)
            if view is not None:
                view.classes.change(slot, 1 << slot, self._class_key(slot, resource, view.fragmentation))

    def resource_for(self, demand: Demand) -> ResourceName | None:
        """Return the resource whose classes a pod is placed by: its own, or the first one if it requests none."""
        return resource_of(demand) or next((offered[0] for offered in self._of_slot.values() if offered), None)

    def view(self, resource: ResourceName) -> GpuView:
        """Return a resource's classes and rankings under the present mix."""
        view = self._views.get(resource)
        if (
            view is None
            or view.version != self.demand_mix.version
            or len(view.classes.all) > _MAX_CLASSES + _MAX_CLASSES_PER_NODE * len(self._nodes)
            or view.changed * _CHANGED_FRACTION > len(self._nodes)
        ):
            members = [slot for slot, offered in self._of_slot.items() if resource in offered]
            fragmentation = Fragmentation(self.demand_mix.expected(resource))
            scarcity = Scarcity(
                fragmentation, Counter(self._empty_room(slot, resource, fragmentation) for slot in members)
            )
            scale = self._scale(resource, members)
            view = self._views[resource] = GpuView(fragmentation, scale, scarcity, self.demand_mix.version)
            for slot in members:
                view.classes.change(slot, 1 << slot, self._class_key(slot, resource, fragmentation))
        return view

    def reserved_groups(self, ranking: Ranking, resource: ResourceName, among: int) -> int:
        """Return the groups of scarce sizes whose nodes a pod takes last."""
        return self._views[resource].reserved_groups(ranking, self._tier_mix.pods.get(resource, 0), among)

    def _empty_room(self, slot: int, resource: ResourceName, fragmentation: Fragmentation) -> NodeRoom:
        """Return the room of a node when it is empty."""
        node = self._nodes[slot]
        cpu = fragmentation.cpu.fitting(node.allocatable.get(CPU, 0))
        memory = fragmentation.memory.fitting(node.allocatable.get(MEMORY, 0))
        size = _layout(node.devices).size if resource == node.devices.resource else 1
        return NodeRoom(DeviceState(_devices(node, resource), size=size), cpu, memory)

    def latest(self, resource: ResourceName) -> GpuView:
        """Return the last view, even of an older mix, without a pass over the nodes."""
        return self._views.get(resource) or self.view(resource)

    def _count(self, slot: int, sign: int) -> None:
        """Add a node's devices to the counts, or subtract them."""
        for resource in self._of_slot.get(slot, ()):
            node = self._nodes[slot]
            group_key = GpuGroup(node.model, resource, resource == node.devices.resource, node.slice)
            devices, number = sign * _devices(node, resource), self.numbers.get(group_key, GpuCount())
            number = GpuCount(number.devices + devices, number.closed + (0 if node.is_open else devices))
            if number.devices:
                self.numbers[group_key] = number
            else:
                self.numbers.pop(group_key, None)  # absent where a node's devices are all gone

    def _scale(self, resource: ResourceName, members: list[int]) -> Scale:
        nodes = [self._nodes[slot] for slot in members]
        return Scale(
            max([1, *(_devices(node, resource) for node in nodes)]),
            max([1, *(node.allocatable.get(CPU, 0) for node in nodes)]),
        )

    def _class_key(self, slot: int, resource: ResourceName, fragmentation: Fragmentation) -> NodeClassKey:
        node, free = self._nodes[slot], self._free
        if resource == node.devices.resource:
            state = _packed(self._device_slots[node.name])
        else:
            state = _plain(free[resource].held(slot))
        capacity = _devices(node, resource)
        cpu, memory = free.get(CPU), free.get(MEMORY)
        return NodeClassKey(
            state,
            0 if cpu is None else fragmentation.cpu.mark(cpu.held(slot)),
            0 if memory is None else fragmentation.memory.mark(memory.held(slot)),
            capacity if state.whole == capacity else 0,  # also 0 where all devices are gone
            self._tier_mix.on(node.name, resource),
        )


@lru_cache(maxsize=1024)
def _plain(free: int) -> DeviceState:
    return DeviceState(max(0, free))


def _devices(node: Node, resource: ResourceName) -> int:
    return _layout(node.devices).number if resource == node.devices.resource else node.allocatable[resource]


class _Layout(NamedTuple):
    """How many devices of a node are shared in parts, and the pieces of the largest."""

    number: int
    size: int


@lru_cache(maxsize=1024)  # computed at every change of a node, and a cluster has a few dozen
def _layout(devices: Devices) -> _Layout:
    return _Layout(sum(capacity > 0 for capacity in devices.capacities), max(1, *devices.capacities))


def _packed(device_slots: DeviceSlots) -> DeviceState:
    whole, partly = 0, []
    for left, capacity in zip(device_slots.free, device_slots.devices.capacities, strict=True):
        if left == capacity:
            whole += capacity > 0
        elif left > 0:
            partly.append(left * WHOLE // capacity)
    partly.sort()
    return DeviceState(whole, tuple(partly), _layout(device_slots.devices).size)
