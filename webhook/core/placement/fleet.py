"""The nodes of the world: what each has free, and which of them meet a pod's constraints.

Slots follow names at the time of the last `arrange`; a node that joins later takes the next slot. Ties in placement
go to the lowest slot, so the same events give the same choices.
"""

from collections.abc import Iterable

from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.names import GpuModel, NodeName, ResourceName, Uid
from webhook.core.model.node import NO_DEVICES, Devices, Node
from webhook.core.model.pod import NO_UID
from webhook.core.model.selector import Constraints
from webhook.core.model.topology import Domains
from webhook.core.placement.demand_mix import DemandMix
from webhook.core.placement.device_slots import DeviceIndex, DeviceSlots
from webhook.core.placement.gpu_index import Gpus
from webhook.core.placement.node_labels import NodeLabelIndex
from webhook.core.placement.slot_index import AmountIndex
from webhook.core.placement.tier_mix import TierMix


class Fleet:
    """Nodes by name and slot, their free resources and the indexes over them."""

    def __init__(self, demand_mix: DemandMix | None = None, company: TierMix | None = None) -> None:
        self._slots: dict[NodeName, int] = {}
        self._nodes: list[Node | None] = []
        self._names: list[NodeName] = []
        self._vacant: list[int] = []
        self._taken: dict[NodeName, dict[ResourceName, int]] = {}  # also of nodes that are not (yet, any more) known
        self._free: dict[ResourceName, AmountIndex] = {}
        self._capacity: dict[ResourceName, AmountIndex] = {}
        self._bays: dict[NodeName, DeviceSlots] = {}  # single devices and who holds them; also of nodes not known
        self._device_room = DeviceIndex()
        self._company = company or TierMix()
        self.gpus = Gpus(demand_mix or DemandMix(), self._free, self._bays, self._company)
        self._by_model: dict[tuple[GpuModel, str], int] = {}
        self._labelled = NodeLabelIndex(self._nodes, self._slots)
        self.open_bits = 0
        self.mig_slots = 0  # slots whose `nvidia.com/gpu` are MIG devices

    def __len__(self) -> int:
        return len(self._slots)

    def nodes(self) -> Iterable[Node]:
        """List all nodes, in slot order."""
        return (node for node in self._nodes if node is not None)

    def get(self, name: NodeName) -> Node | None:
        """Find a node by name."""
        slot = self._slots.get(name)
        return None if slot is None else self._nodes[slot]

    def set(self, node: Node) -> None:
        """Add a node, or take in what changed of it (capacity cut below use included: free is then negative)."""
        slot = self._slots.get(node.name)
        if slot is None:
            slot = self._vacant.pop() if self._vacant else len(self._nodes)
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
        if before is not None:
            self._leave_model(before, bit)
        model = (node.model, node.model_label)
        self._by_model[model] = self._by_model.get(model, 0) | bit
        self.open_bits = self.open_bits | bit if node.is_open else self.open_bits & ~bit
        self.mig_slots = self.mig_slots & ~bit if node.slice is None else self.mig_slots | bit
        if before is None or before.labels != node.labels or before.taints != node.taints:
            self._labelled.change(slot, before, node)
        for name in node.allocatable.keys() | (before.allocatable.keys() if before else frozenset()):
            self._settle(slot, node, name)
        self._lay_out(slot, node.name, node.devices)
        self.gpus.set(slot, node)

    def remove(self, name: NodeName) -> None:
        """Drop a node; what pods hold there is remembered until they end."""
        node = self.get(name)
        if node is None:
            return
        slot = self._slots.pop(name)
        self._nodes[slot] = None
        self._vacant.append(slot)
        self.open_bits &= ~(1 << slot)
        self.mig_slots &= ~(1 << slot)
        self._leave_model(node, 1 << slot)
        self._labelled.change(slot, node, None)
        gone = Node(name=name, allocatable={})
        for resource in node.allocatable:
            self._settle(slot, gone, resource)
        self._lay_out(slot, name, NO_DEVICES)
        self.gpus.remove(slot)

    def take(
        self, name: NodeName, demand: Demand, *, sign: int = 1, holder: Uid = NO_UID, devices: tuple[int, ...] = ()
    ) -> None:
        """Put a pod's requests on a node (sign -1: off it again).

        Where it takes parts of devices `holder` says whose they are, and `devices` which, if that is known.
        """
        self._company.change(name, demand, holder, sign)
        self.promise(name, demand, sign=sign, holder=holder, devices=devices)
        self.settle(name)

    def promise(
        self, name: NodeName, demand: Demand, *, sign: int = 1, holder: Uid = NO_UID, devices: tuple[int, ...] = ()
    ) -> None:
        """Take room as `take` does, but rank the node as it was, until `settle` or something else happens there.

        Who gives room back settles at once: a ranking leaves out nodes that seem to have too little cpu.
        """
        taken = self._taken.get(name)
        if taken is None:
            taken = self._taken[name] = {}
        slot = self._slots.get(name)
        node = None if slot is None else self._nodes[slot]
        bit, offered = (0, {}) if slot is None or node is None else (1 << slot, node.allocatable)
        for resource, amount in demand.requests:
            total = taken[resource] = taken.get(resource, 0) + sign * amount
            capacity = offered.get(resource)
            if capacity and slot is not None:
                self._free[resource].change(slot, bit, capacity - total)
        if demand.per_device is not None:
            self._take_devices(name, demand.per_device, sign=sign, holder=holder, devices=devices)
        if sign < 0 and not any(taken.values()):
            del self._taken[name]

    def settle(self, name: NodeName) -> None:
        """Rank a node by what is on it now."""
        slot = self._slots.get(name)
        if slot is not None:
            self.gpus.settle(slot)

    def set_borrowed(self, holder: Uid, demand: Demand, *, is_borrowed: bool, on: NodeName | None = None) -> None:
        """Say whether a pod borrows from now on; `on` is the node whose room it holds already."""
        if self._company.set_borrowed(holder, demand, is_borrowed=is_borrowed, on=on) and on is not None:
            self.settle(on)

    def free(self, name: NodeName, resource: ResourceName) -> int:
        """Tell how much of a resource a node has left; negative where more is used than it now offers."""
        slot = self._slots.get(name)
        index = self._free.get(resource)
        return 0 if slot is None or index is None else index.held(slot)

    def fits(self, name: NodeName, demand: Demand) -> bool:
        """Tell whether a node is open and has room for all that is asked."""
        slot = self._slots.get(name)
        if slot is None or not self.open_bits >> slot & 1:
            return False
        ask = demand.per_device
        return (ask is None or bool(self._device_room.with_room(ask) >> slot & 1)) and all(
            (index := self._free.get(resource)) is not None and index.held(slot) >= amount
            for resource, amount in demand.requests
        )

    def devices_of(self, name: NodeName, holder: Uid) -> tuple[int, ...]:
        """Tell which devices of a node a pod holds, as far as parts of devices are concerned."""
        device_slots = self._bays.get(name)
        return () if device_slots is None else device_slots.devices_held_by(holder)

    def device_slots(self, name: NodeName) -> DeviceSlots:
        """Copy a node's devices and who holds them, to try things out."""
        device_slots = self._bays.get(name)
        return DeviceSlots() if device_slots is None else device_slots.copy()

    def with_room(self, demand: Demand, among: int) -> int:
        """Narrow a set of slots to those that have room for all that is asked now."""
        among = _hold(self._free, demand, among)
        return among if demand.per_device is None else among & self._device_room.with_room(demand.per_device)

    def with_capacity(self, demand: Demand, among: int) -> int:
        """Narrow a set of slots to those that would have room if they were empty."""
        among = _hold(self._capacity, demand, among)
        return among if demand.per_device is None else among & self._device_room.with_capacity(demand.per_device)

    def offering(self, resource: ResourceName, amount: int, among: int) -> int:
        """Narrow a set of slots to those that offer so much of one resource, free or not."""
        index = self._capacity.get(resource)
        return 0 if index is None else among & index.at_least(amount)

    def offers(self, resource: ResourceName) -> bool:
        """Tell whether any node offers a resource."""
        index = self._capacity.get(resource)
        return index is not None and bool(index.at_least(1))

    def having(self, resource: ResourceName, amount: int, among: int) -> int:
        """Narrow a set of slots to those that have so much of one resource free."""
        index = self._free.get(resource)
        return 0 if index is None else among & index.at_least(amount)

    def largest_allocatable(self, resource: ResourceName, among: int) -> int:
        """Tell the most of a resource that one of these slots offers, free or not."""
        index = self._capacity.get(resource)
        return 0 if index is None else index.most(among)

    def bit(self, name: NodeName) -> int:
        """Give the bitmap of one node; 0 where it is unknown."""
        slot = self._slots.get(name)
        return 0 if slot is None else 1 << slot

    def by_model(self) -> dict[tuple[GpuModel, str], int]:
        """List the slots of each GPU model and the label that names it."""
        return self._by_model

    def names_of(self, bits: int) -> list[NodeName]:
        """Name the nodes of a bitmap, in slot order."""
        return [self._names[slot] for slot, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]

    def free_on(self, bits: int, resource: ResourceName) -> list[tuple[NodeName, int]]:
        """Tell how much of a resource the nodes of a bitmap have left, in slot order."""
        index = self._free.get(resource)
        if index is None:
            return [(name, 0) for name in self.names_of(bits)]
        names = self._names
        return [(names[slot], index.held(slot)) for slot, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]

    def names(self, slots: list[int]) -> tuple[NodeName, ...]:
        """Name the nodes in slots that a bitmap listed."""
        names = self._names
        return tuple([names[slot] for slot in slots])

    def matching(self, constraints: Constraints) -> int:
        """List the slots whose labels, taints and name meet the constraints."""
        return self._labelled.matching(constraints)

    def domains(self, key: str) -> Domains:
        """Sort the nodes by the value of a label."""
        return self._labelled.domains(key)

    def track(self, resource: ResourceName) -> None:
        """Rank nodes by a GPU resource from now on."""
        self.gpus.track(resource)

    def sorted_copy(self) -> "Fleet":
        """Copy the fleet with slots in the order of names, once many nodes have come at once (a list, a world file)."""
        copy = Fleet(self.gpus.demand_mix, self._company)
        copy._taken = self._taken
        copy._bays.update(self._bays)
        for resource in self.gpus.tracked:
            copy.track(resource)
        for node in sorted(self.nodes(), key=lambda node: node.name):
            copy.set(node)
        return copy

    def _lay_out(self, slot: int, name: NodeName, devices: Devices) -> None:
        device_slots = self._bays.get(name)
        if device_slots is None:
            if not devices.capacities:
                self._device_room.change(slot, devices, [])
                return
            device_slots = self._bays[name] = DeviceSlots()
        device_slots.lay_out(devices)
        self._device_room.change(slot, devices, device_slots.free)
        self._drop_idle(name, device_slots)

    def _take_devices(
        self, name: NodeName, ask: PerDevice, *, sign: int, holder: Uid, devices: tuple[int, ...]
    ) -> None:
        device_slots = self._bays.get(name)
        if device_slots is None:
            device_slots = self._bays[name] = DeviceSlots()
        if sign > 0:
            device_slots.take(holder, ask, devices)
        else:
            device_slots.release(holder)
        slot = self._slots.get(name)
        if slot is not None:
            self._device_room.change(slot, device_slots.devices, device_slots.free)
        self._drop_idle(name, device_slots)

    def _drop_idle(self, name: NodeName, device_slots: DeviceSlots) -> None:
        if not device_slots and not device_slots.devices.capacities:
            del self._bays[name]

    def _leave_model(self, node: Node, bit: int) -> None:
        model = (node.model, node.model_label)
        left = self._by_model[model] & ~bit
        if left:
            self._by_model[model] = left
        else:
            del self._by_model[model]

    def _settle(self, slot: int, node: Node, resource: ResourceName) -> None:
        """Bring the indexes of one resource of one slot up to date."""
        bit = 1 << slot
        capacity = node.allocatable.get(resource, 0)
        free = capacity - self._taken.get(node.name, {}).get(resource, 0) if capacity else 0
        index = self._free.get(resource)
        if index is None:
            index = self._free[resource] = AmountIndex()
        index.change(slot, bit, free)
        whole = self._capacity.get(resource)
        if whole is None:
            whole = self._capacity[resource] = AmountIndex()
        whole.change(slot, bit, capacity)


def _hold(indexes: dict[ResourceName, AmountIndex], demand: Demand, among: int) -> int:
    for resource, amount in demand.requests:
        index = indexes.get(resource)
        if index is None:
            return 0
        bits = index.known.get(amount)
        among &= index.learn(amount) if bits is None else bits
    return among
