"""All nodes: room, reservations.

What pods take that come with each node, such as those of DaemonSets: no end of other pods makes that room free.
"""

from collections.abc import Iterable, Sequence

from webhook.core.model.amounts import HOST_PORT, GpuModel, NodeName, ResourceName, Uid
from webhook.core.model.constraints import HELD, Constraints, Operator, Requirement
from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.gpu_shares import REPLICAS, replica_slice
from webhook.core.model.node import NO_DEVICES, Devices, Node
from webhook.core.model.pod import NO_UID
from webhook.core.model.topology import Domains
from webhook.core.placement.devices import (
    AmountIndexes,
    DeviceIndex,
    DeviceSlots,
    KeyedSlots,
    MissingDevices,
    index_of,
    lowest_slot,
    with_amounts,
)
from webhook.core.placement.fragmentation import DemandMix, TierMix
from webhook.core.placement.gpu_index import GpuIndex
from webhook.core.placement.node_labels import NodeGroups, NodeLabelIndex


class StandingUse:
    """The use by node, also of nodes that are unknown, and an index of what is left beside it of a node at its best."""

    def __init__(self, used: "dict[NodeName, dict[ResourceName, int]] | None" = None) -> None:
        self.used: dict[NodeName, dict[ResourceName, int]] = {} if used is None else used
        self._left = AmountIndexes()

    def change(self, name: NodeName, demand: Demand, *, sign: int) -> None:
        """Count a pod that comes with a node, or (sign -1) count it no longer; `update` its resources afterwards."""
        used = self.used.setdefault(name, {})
        for resource, amount in demand.requests:
            used[resource] = used.get(resource, 0) + sign * amount
        if not any(used.values()):
            del self.used[name]

    def update(self, slot: int, node: Node, resource: ResourceName) -> None:
        """Update what is left of one resource of a node."""
        used = self.used.get(node.name)
        left = node.amount_at_best(resource) - (0 if used is None else used.get(resource, 0))
        self._left[resource].change(slot, 1 << slot, left)

    def leaves(self, demand: Demand, among: int) -> int:
        """Return those of the slots where as much as a demand asks for is left, resource by resource."""
        for resource, amount in demand.requests:
            index = self._left.get(resource) or index_of(self._left, resource)
            among &= 0 if index is None else index.at_least(amount)
        return among


# The nodes of the world: free resources of each, and which of them meet a pod's constraints.
#
# Slots are in the order of names at the time of the last sort; a node that joins later takes the next slot. Ties in
# placement go to the lowest slot, so the same events give the same choices.


class Fleet:
    """Nodes by name and slot, their free resources and the indexes over them."""

    def __init__(self, demand_mix: DemandMix | None = None, company: TierMix | None = None) -> None:
        self._slots: dict[NodeName, int] = {}
        self._nodes: list[Node | None] = []
        self._names: list[NodeName] = []
        self._free_slots: list[int] = []
        self._used: dict[NodeName, dict[ResourceName, int]] = {}  # also of nodes that are unknown (yet, or no longer)
        self._free = AmountIndexes()
        self._capacity = AmountIndexes()
        self._standing = StandingUse()
        self._missing = MissingDevices()
        self._device_slots: dict[NodeName, DeviceSlots] = {}  # single devices and their holders; also of unknown nodes
        self._device_room = DeviceIndex()
        self._tier_mix = company or TierMix()
        self.gpus = GpuIndex(demand_mix or DemandMix(), self._free, self._device_slots, self._tier_mix)
        self._models: KeyedSlots[tuple[GpuModel, str]] = KeyedSlots()
        self.slices: KeyedSlots[ResourceName] = KeyedSlots()  # of nodes whose `nvidia.com/gpu` are parts of GPUs
        self.labels = NodeLabelIndex(self._nodes, self._slots)
        self.open_bits = 0
        self.maintained_bits = 0  # nodes that operators change
        self.unmarked_bits = 0  # of these, those that kube-scheduler takes for nodes like others
        self._counts_replicas = False

    def __len__(self) -> int:
        return len(self._slots)

    def nodes(self) -> Iterable[Node]:
        """Return all nodes, in slot order."""
        return (node for node in self._nodes if node is not None)

    def get(self, name: NodeName) -> Node | None:
        """Return a node by name; None where it is unknown."""
        slot = self._slots.get(name)
        return None if slot is None else self._nodes[slot]

    def set(self, node: Node) -> None:
        """Add or update a node; where capacity is cut below the used amount, the free amount is negative."""
        node = node.by_replicas(is_counted=self._counts_replicas)
        slot = self._slots.get(node.name)
        if slot is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._nodes)
            if slot == len(self._nodes):
                self._nodes.append(None)
                self._names.append(node.name)
            self._names[slot] = node.name
            self._slots[node.name] = slot
        before = self._nodes[slot]
        if before == node:
            return
        self._nodes[slot] = node
        bit = 1 << slot
        self._models.change(bit, None if before is None else _model(before), _model(node))
        self.slices.change(bit, None if before is None else before.slice, node.slice)
        self._leave_states(bit)
        if node.is_open:
            self.open_bits |= bit
        elif node.maintenance is not None:
            self.maintained_bits |= bit
            self.unmarked_bits |= bit if node.is_ready and not node.is_cordoned else 0
        if before is None or before.labels != node.labels or before.taints != node.taints:
            self.labels.change(slot, before, node)
        # of one that joins, host ports may be in use already
        known = (
            self._used.get(node.name, {}).keys()
            if before is None
            else before.allocatable.keys() | before.at_best.keys()
        )
        for name in node.allocatable.keys() | node.at_best.keys() | known:
            self._update_indexes(slot, node, name)
        self._set_devices(slot, node.name, node.devices)
        self._missing.change(slot, before, node)
        self.gpus.set(slot, node)

    def remove(self, name: NodeName) -> None:
        """Remove a node; what pods use there is kept until they end."""
        node = self.get(name)
        if node is None:
            return
        slot = self._slots.pop(name)
        self._nodes[slot] = None
        self._free_slots.append(slot)
        self._leave_states(1 << slot)
        self._models.change(1 << slot, _model(node), None)
        self.slices.change(1 << slot, node.slice, None)
        self.labels.change(slot, node, None)
        gone = Node(NodeName(""), {})
        for resource in node.allocatable.keys() | self._used.get(name, {}).keys():
            self._update_indexes(slot, gone, resource)
        self._set_devices(slot, name, NO_DEVICES)
        self._missing.change(slot, node, gone)
        self.gpus.remove(slot)

    def take(
        self, name: NodeName, demand: Demand, *, sign: int = 1, holder: Uid = NO_UID, devices: tuple[int, ...] = ()
    ) -> None:
        """Add a pod's requests to a node (sign -1: subtract them).

        Where it takes parts of devices, `holder` is the pod and `devices` are the ones it has, if that is known.
        """
        self._tier_mix.change(name, demand, holder, sign)
        self.reserve(name, demand, sign=sign, holder=holder, devices=devices)
        self.rerank(name)

    def reserve(
        self, name: NodeName, demand: Demand, *, sign: int = 1, holder: Uid = NO_UID, devices: tuple[int, ...] = ()
    ) -> None:
        """Take room as `take` does, but rank the node as before, until `rerank` is called or the node changes.

        A caller that gives room back calls `rerank` at once: a ranking leaves out nodes that seem to have too little
        cpu.
        """
        used = self._used.get(name)
        if used is None:
            used = self._used[name] = {}
        slot = self._slots.get(name)
        node = None if slot is None else self._nodes[slot]
        bit, offered = (0, {}) if slot is None or node is None else (1 << slot, node.allocatable)
        for resource, amount in demand.requests:
            total = used[resource] = used.get(resource, 0) + sign * amount
            capacity = offered.get(resource) or resource.startswith(HOST_PORT)
            if capacity and slot is not None:
                self._free[resource].change(slot, bit, capacity - total)
        if demand.per_device is not None:
            self._take_devices(name, demand.per_device, sign=sign, holder=holder, devices=devices)
        if sign < 0 and not any(used.values()):
            del self._used[name]

    def rerank(self, name: NodeName) -> None:
        """Rank a node by its present pods."""
        slot = self._slots.get(name)
        if slot is not None:
            self.gpus.rerank(slot)

    def set_borrowed(self, holder: Uid, demand: Demand, *, is_borrowed: bool, on: NodeName | None = None) -> None:
        """Set whether a pod borrows; `on` is the node where its room is taken already."""
        if self._tier_mix.set_borrowed(holder, demand, is_borrowed=is_borrowed, on=on) and on is not None:
            self.rerank(on)

    def free(self, name: NodeName, resource: ResourceName) -> int:
        """Return the free amount of a resource on a node; negative where more is used than the node now has."""
        slot = self._slots.get(name)
        index = self._free.get(resource) or index_of(self._free, resource)
        return 0 if slot is None or index is None else index.held(slot)

    def is_overbooked(self, name: NodeName, demand: Demand) -> bool:
        """Whether more of the devices of a demand is taken on a node than it has, as where reclaim is to make room."""
        return any(self.free(name, resource) < 0 for resource, _ in demand.devices)

    @property
    def held_bits(self) -> int:
        """The nodes that are reserved for waiting pods: what is free there is for those alone."""
        found = 0
        for _, bits in self.labels.tainted(HELD):
            found |= bits
        return found

    def tainted(self, key: str) -> dict[str, NodeName]:
        """Return one node by each value that a taint with this key has."""
        return {value: self._names[lowest_slot(bits)] for value, bits in self.labels.tainted(key) if bits}

    def fits(self, name: NodeName, demand: Demand) -> bool:
        """Whether a node is open and has room for the whole demand."""
        slot = self._slots.get(name)
        if slot is None or not self.open_bits >> slot & 1:
            return False
        ask = demand.per_device
        return (ask is None or bool(self._device_room.with_room(ask) >> slot & 1)) and all(
            (index := self._free.get(resource) or index_of(self._free, resource)) is not None
            and index.held(slot) >= amount
            for resource, amount in demand.requests
        )

    def devices_of(self, name: NodeName, holder: Uid) -> tuple[int, ...]:
        """Return the devices of a node that a pod holds, as far as parts of devices are concerned."""
        device_slots = self._device_slots.get(name)
        return () if device_slots is None else device_slots.devices_held_by(holder)

    def device_slots(self, name: NodeName) -> DeviceSlots:
        """Return a copy of a node's devices and their holders, for simulations."""
        device_slots = self._device_slots.get(name)
        return DeviceSlots() if device_slots is None else device_slots.copy()

    def with_room(self, demand: Demand, among: int) -> int:
        """Return those of the slots that have room for the whole demand now."""
        among = with_amounts(self._free, demand.requests, among)
        return among if demand.per_device is None else among & self._device_room.with_room(demand.per_device)

    def with_capacity(self, demand: Demand, among: int) -> int:
        """Return those of the slots that would have room for the demand if they were empty."""
        among = with_amounts(self._capacity, demand.requests, among)
        return among if demand.per_device is None else among & self._device_room.with_capacity(demand.per_device)

    def could_start(self, demand: Demand, among: int) -> int:
        """Return those of the slots that would have room for the demand beside nothing but their nodes' own pods."""
        return self.could_hold(demand, self._standing.leaves(demand, among))

    def stand(self, name: NodeName, demand: Demand, *, sign: int = 1) -> None:
        """Count a pod that comes with a node (sign -1: count it no longer)."""
        self._standing.change(name, demand, sign=sign)
        if (node := self.get(name)) is not None:
            for resource, _ in demand.requests:
                self._standing.update(self._slots[name], node, resource)

    def could_hold(self, demand: Demand, among: int) -> int:
        """Return those of the slots that would have room for the demand if they were empty, with all of their devices.

        Of some devices a node may offer none for a while: `with_capacity` says what it could hold without them.
        """
        if not self._missing:
            return self.with_capacity(demand, among)
        for resource, amount in demand.requests:
            among &= self._having_at_best(resource, amount)
        if demand.per_device is None:
            return among
        devices = self._device_room.with_capacity(demand.per_device)
        return among & (devices | self._missing.with_capacity(demand.per_device))

    def offering(self, resource: ResourceName, amount: int, among: int) -> int:
        """Return those of the slots with at least this amount of one resource at their best, free or not."""
        return among & self._having_at_best(resource, amount)

    def offers(self, resource: ResourceName) -> bool:
        """Whether any node has a resource at its best."""
        return bool(self._having_at_best(resource, 1))

    def having(self, resource: ResourceName, amount: int, among: int) -> int:
        """Return those of the slots with at least this free amount of one resource."""
        index = self._free.get(resource) or index_of(self._free, resource)
        return 0 if index is None else among & index.at_least(amount)

    def most_free(self, resource: ResourceName, among: int) -> int:
        """Return the largest free amount of a resource on one of the slots."""
        index = self._free.get(resource) or index_of(self._free, resource)
        return 0 if index is None else max(0, index.most(among))

    def largest_amount(self, resource: ResourceName, among: int) -> int:
        """Return the largest amount of a resource on one of the slots at its best, free or not."""
        index = index_of(self._capacity, resource)
        return max(0 if index is None else index.most(among), self._missing.most(resource, among))

    def bit(self, name: NodeName) -> int:
        """Return the bitmap of one node; 0 where it is unknown."""
        slot = self._slots.get(name)
        return 0 if slot is None else 1 << slot

    def are_replicas(self, replicas: int) -> bool:
        """Whether there are nodes labelled with so many replicas, and a piece of each of them is one of so many."""
        labelled = self.labels.meeting((Requirement(REPLICAS, Operator.IN, (str(replicas),)),))
        return bool(labelled) and not labelled & ~self.slices.by_key.get(replica_slice(replicas), 0)

    def by_model(self) -> dict[tuple[GpuModel, str], int]:
        """Return the slots of each GPU model, with the label that names the model."""
        return self._models.by_key

    def names_of(self, bits: int) -> list[NodeName]:
        """Return the names of the nodes of a bitmap, in slot order."""
        return [self._names[slot] for slot in self.slots_of(bits)]

    def free_on(self, bits: int, resource: ResourceName) -> list[tuple[NodeName, int]]:
        """Return the free amount of a resource on the nodes of a bitmap, in slot order."""
        slots = self.slots_of(bits)
        return list(zip(self.names(slots), self.free_at(slots, resource), strict=True))

    def slots_of(self, bits: int) -> list[int]:
        """Return the slots of a bitmap, in order."""
        return [slot for slot, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]

    def free_at(self, slots: Sequence[int], resource: ResourceName) -> list[int]:
        """Return the free amount of a resource on some slots."""
        index = self._free.get(resource) or index_of(self._free, resource)
        return [0] * len(slots) if index is None else index.held_at(slots)

    def allocatable_at(self, slots: Sequence[int], resource: ResourceName) -> list[int]:
        """Return the allocatable amount of a resource on some slots."""
        index = self._capacity.get(resource) or index_of(self._capacity, resource)
        return [0] * len(slots) if index is None else index.held_at(slots)

    def amounts_at_best(self, slots: Sequence[int], resource: ResourceName) -> list[int]:
        """Return the amount of a resource that some slots have at their best."""
        offered = self.allocatable_at(slots, resource)
        return list(map(max, offered, self._missing.held_at(slots, resource))) if self._missing else offered

    def names(self, slots: Sequence[int]) -> tuple[NodeName, ...]:
        """Return the names of the nodes in a list of slots."""
        names = self._names
        return tuple([names[slot] for slot in slots])

    def matching(self, constraints: Constraints) -> int:
        """Return the slots whose labels, taints and name meet the constraints."""
        return self.labels.matching(constraints)

    def meeting(self, requirements: tuple[Requirement, ...]) -> int:
        """Return the slots whose labels meet all of these requirements, whatever their taints."""
        return self.labels.meeting(requirements)

    def groups(self, keys: tuple[str, ...]) -> NodeGroups:
        """Return the nodes grouped by the values of some labels; the first key says which nodes are in a group."""
        return self.labels.groups(keys)

    def domains(self, key: str) -> Domains:
        """Return the nodes by the value of a label."""
        return self.labels.domains(key)

    def count_replicas(self, *, is_counted: bool) -> None:
        """Set whether a piece of `nvidia.com/gpu` is one of several replicas on nodes whose label says so."""
        self._counts_replicas = is_counted
        for node in list(self.nodes()):
            self.set(node)

    def track(self, resource: ResourceName) -> None:
        """Rank nodes by a GPU resource from now on."""
        self.gpus.track(resource)

    def sorted_copy(self) -> "Fleet":
        """Return a copy with slots in the order of names, after many nodes came at once (a list, a world file)."""
        copy = Fleet(self.gpus.demand_mix, self._tier_mix)
        copy._used, copy._standing = self._used, StandingUse(self._standing.used)
        copy._counts_replicas = self._counts_replicas
        copy._device_slots.update(self._device_slots)
        copy.labels.volumes, copy.labels.claims = self.labels.volumes, self.labels.claims
        for resource in self.gpus.tracked:
            copy.track(resource)
        for node in sorted(self.nodes(), key=lambda node: node.name):
            copy.set(node)
        return copy

    def _set_devices(self, slot: int, name: NodeName, devices: Devices) -> None:
        device_slots = self._device_slots.get(name)
        if device_slots is None:
            if not devices.capacities:
                self._device_room.change(slot, devices, [])
                return
            device_slots = self._device_slots[name] = DeviceSlots()
        device_slots.set_devices(devices)
        self._device_room.change(slot, devices, device_slots.free)
        self._drop_unused(name, device_slots)

    def _having_at_best(self, resource: ResourceName, amount: int) -> int:
        index = index_of(self._capacity, resource)
        return (0 if index is None else index.at_least(amount)) | self._missing.at_least(resource, amount)

    def _take_devices(
        self, name: NodeName, ask: PerDevice, *, sign: int, holder: Uid, devices: tuple[int, ...]
    ) -> None:
        device_slots = self._device_slots.get(name)
        if device_slots is None:
            device_slots = self._device_slots[name] = DeviceSlots()
        if sign > 0:
            device_slots.take(holder, ask, devices)
        else:
            device_slots.release(holder)
        slot = self._slots.get(name)
        if slot is not None:
            self._device_room.change(slot, device_slots.devices, device_slots.free)
        self._drop_unused(name, device_slots)

    def _drop_unused(self, name: NodeName, device_slots: DeviceSlots) -> None:
        if not device_slots and not device_slots.devices.capacities:
            del self._device_slots[name]

    def _leave_states(self, bit: int) -> None:
        self.open_bits &= ~bit
        self.maintained_bits &= ~bit
        self.unmarked_bits &= ~bit

    def _update_indexes(self, slot: int, node: Node, resource: ResourceName) -> None:
        """Update the indexes of one resource of one slot."""
        bit = 1 << slot
        capacity = node.allocatable.get(resource, int(resource.startswith(HOST_PORT)))
        free = capacity - self._used.get(node.name, {}).get(resource, 0) if capacity else 0
        self._free[resource].change(slot, bit, free)
        self._capacity[resource].change(slot, bit, capacity)
        self._standing.update(slot, node, resource)


def _model(node: Node) -> tuple[GpuModel, str]:
    return node.model, node.model_label
