"""The GPUs of nodes that share them in parts: the free room of each device, and the pods that hold it.

A share needs its room on one device: two free halves on two devices are not a whole. Only resources that are packed per
device are here (`Node.devices`); resources that a device plugin counts in pieces, whole GPUs among them, are plain
amounts.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.core.model.demand import PerDevice
from webhook.core.model.names import ResourceName, Uid
from webhook.core.model.node import NO_DEVICES, Devices
from webhook.core.placement.slot_index import AmountIndex

_MAX_KINDS: Final = 64
"""Request kinds (resource, devices, parts) with an index: pods request 1 to 16 devices of one or two resources."""


@dataclass(slots=True)
class _Assignment:
    request: PerDevice
    indices: tuple[int, ...]


class DeviceSlots:
    """The devices of one node and the pods that hold them; holders are kept while the node is unknown, too."""

    __slots__ = ("_assignments", "devices", "free")

    def __init__(self) -> None:
        self.devices = NO_DEVICES
        self.free: list[int] = []  # by index, negative where more is held than the device has
        self._assignments: dict[Uid, _Assignment] = {}

    def __len__(self) -> int:
        return len(self._assignments)

    def copy(self) -> "DeviceSlots":
        """Return a copy, to test what would be free without some pods."""
        other = DeviceSlots()
        other.devices = self.devices
        other.free = list(self.free)
        other._assignments = {
            uid: _Assignment(assignment.request, assignment.indices) for uid, assignment in self._assignments.items()
        }
        return other

    def has_room(self, request: PerDevice) -> bool:
        """Whether enough devices have the requested room."""
        if request.resource != self.devices.resource:
            return False
        left = (free - request.on(capacity) for free, capacity in zip(self.free, self.devices.capacities, strict=True))
        return sum(amount >= 0 for amount in left) >= request.number

    def set_devices(self, devices: Devices) -> None:
        """Set the node's devices; holders keep theirs where those still exist."""
        self.devices = devices
        self.free = list(devices.capacities)
        for assignment in self._assignments.values():
            self._assign(assignment)

    def take(self, holder: Uid, request: PerDevice, known: tuple[int, ...] = ()) -> None:
        """Assign a pod the devices that it is known to have, or else those that fit most tightly."""
        assignment = self._assignments[holder] = _Assignment(request, known)
        self._assign(assignment)

    def release(self, holder: Uid) -> None:
        """Free the devices of a pod."""
        assignment = self._assignments.pop(holder, None)
        if assignment is not None and assignment.request.resource == self.devices.resource:
            for index in assignment.indices:
                self.free[index] += assignment.request.on(self.devices.capacities[index])

    def devices_held_by(self, holder: Uid) -> tuple[int, ...]:
        """Return the devices that a pod holds, by index."""
        assignment = self._assignments.get(holder)
        return () if assignment is None else assignment.indices

    def _assign(self, assignment: _Assignment) -> None:
        request, capacities = assignment.request, self.devices.capacities
        if request.resource != self.devices.resource:
            return
        assignment.indices = tuple(
            [index for index in assignment.indices if index < len(capacities)]
        ) or best_fit_devices(self.free, capacities, request)
        for index in assignment.indices:
            self.free[index] -= request.on(capacities[index])


def best_fit_devices(free: list[int], capacities: tuple[int, ...], request: PerDevice) -> tuple[int, ...]:
    """Choose devices as device plugins do, the fullest that fit; where too few fit, the emptiest of the others."""
    pieces = [request.on(capacity) for capacity in capacities] if request.parts else [request.amount] * len(capacities)
    left = [(amount - each, index) for index, (amount, each) in enumerate(zip(free, pieces, strict=True))]
    fits = [each for each in left if each[0] >= 0]
    if request.number == 1 and fits:
        return (min(fits)[1],)
    fits.sort()
    if len(fits) < request.number:
        fits += sorted((each for each in left if each[0] < 0), reverse=True)
    return tuple([index for _, index in fits[: request.number]])


def largest(amounts: list[int], capacities: tuple[int, ...], kind: "RequestKind") -> int:
    """Return the most that `number` devices all have, in pieces or in parts of a device; 0 where there are too few."""
    if len(amounts) < kind.number:
        return 0
    if kind.parts:
        amounts = [
            amount * kind.parts // capacity if capacity else 0
            for amount, capacity in zip(amounts, capacities, strict=True)
        ]
    return max(amounts) if kind.number == 1 else sorted(amounts)[-kind.number]


class RequestKind(NamedTuple):
    """A request without its amount: requests that differ only in the amount share an index."""

    resource: ResourceName
    number: int
    parts: int


class DeviceIndex:
    """Which slots have room for a request on single devices, now and when empty."""

    __slots__ = ("_capacity", "_devices", "_free")

    def __init__(self) -> None:
        self._devices: dict[int, tuple[Devices, list[int]]] = {}  # by slot: the devices, and their free room
        self._free: dict[RequestKind, AmountIndex] = {}
        self._capacity: dict[RequestKind, AmountIndex] = {}

    def change(self, slot: int, devices: Devices, free: list[int]) -> None:
        """Update a slot."""
        before = self._devices.get(slot)
        if before is None and not devices.capacities:
            return
        self._devices[slot] = (devices, free)
        bit = 1 << slot
        ordered = sorted(free, reverse=True)  # once for all requests that differ only in number
        for kind, index in self._free.items():
            if kind.parts or kind.resource != devices.resource:
                index.change(slot, bit, _room(devices, free, kind))
            else:
                index.change(slot, bit, ordered[kind.number - 1] if kind.number <= len(ordered) else 0)
        if before is None or before[0] != devices:
            for kind, index in self._capacity.items():
                index.change(slot, bit, _room(devices, list(devices.capacities), kind))

    def with_room(self, request: PerDevice) -> int:
        """Return the slots that have room now."""
        return self._slots(self._free, request)

    def with_capacity(self, request: PerDevice) -> int:
        """Return the slots that would have room if they were empty."""
        return self._slots(self._capacity, request)

    def _slots(self, indexes: dict[RequestKind, AmountIndex], request: PerDevice) -> int:
        kind = RequestKind(request.resource, request.number, request.parts)
        index = indexes.get(kind)
        if index is None:
            if len(indexes) >= _MAX_KINDS:
                del indexes[next(iter(indexes))]
            index = indexes[kind] = AmountIndex()
            for slot, (devices, free) in self._devices.items():
                amounts = free if indexes is self._free else list(devices.capacities)
                index.change(slot, 1 << slot, _room(devices, amounts, kind))
        return index.at_least(request.amount)


def _room(devices: Devices, amounts: list[int], kind: RequestKind) -> int:
    return largest(amounts, devices.capacities, kind) if devices.resource == kind.resource else 0
