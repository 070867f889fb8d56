"""The GPUs of nodes that hand out parts of them: what each single device has left, and who holds it.

A share needs its room on one device: two halves free on two devices are no whole. Only resources that pack per device
are here (`Node.devices`); what a device plugin counts in pieces, whole GPUs among them, is a plain amount.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.core.model.demand import PerDevice
from webhook.core.model.names import ResourceName, Uid
from webhook.core.model.node import NO_DEVICES, Devices
from webhook.core.placement.slot_index import AmountIndex

_KEPT_ASKS: Final = 64
"""Kinds of ask (resource, devices, parts) that have an index: pods ask for 1 to 16 devices of a resource or two."""


@dataclass(slots=True)
class _Hold:
    ask: PerDevice
    indices: tuple[int, ...]


class DeviceSlots:
    """One node's devices. Who holds what is remembered while the node is unknown, too."""

    __slots__ = ("_held", "devices", "free")

    def __init__(self) -> None:
        self.devices = NO_DEVICES
        self.free: list[int] = []  # by index, negative where more is held than there is
        self._held: dict[Uid, _Hold] = {}

    def __len__(self) -> int:
        return len(self._held)

    def copy(self) -> "DeviceSlots":
        """Copy it, to try out what would be free if some pods went."""
        other = DeviceSlots()
        other.devices = self.devices
        other.free = list(self.free)
        other._held = {uid: _Hold(hold.ask, hold.indices) for uid, hold in self._held.items()}
        return other

    def has_room(self, ask: PerDevice) -> bool:
        """Tell whether enough devices have what is asked."""
        if ask.resource != self.devices.resource:
            return False
        left = (free - ask.on(capacity) for free, capacity in zip(self.free, self.devices.capacities, strict=True))
        return sum(amount >= 0 for amount in left) >= ask.number

    def lay_out(self, devices: Devices) -> None:
        """Take in what the devices are now; holders keep theirs where those still exist."""
        self.devices = devices
        self.free = list(devices.capacities)
        for hold in self._held.values():
            self._put(hold)

    def take(self, holder: Uid, ask: PerDevice, known: tuple[int, ...] = ()) -> None:
        """Let a pod hold the devices that it is known to have, else those that fit it most tightly."""
        hold = self._held[holder] = _Hold(ask, known)
        self._put(hold)

    def release(self, holder: Uid) -> None:
        """Free what a pod holds."""
        hold = self._held.pop(holder, None)
        if hold is not None and hold.ask.resource == self.devices.resource:
            for index in hold.indices:
                self.free[index] += hold.ask.on(self.devices.capacities[index])

    def devices_held_by(self, holder: Uid) -> tuple[int, ...]:
        """Tell which devices a pod holds."""
        hold = self._held.get(holder)
        return () if hold is None else hold.indices

    def _put(self, hold: _Hold) -> None:
        ask, capacities = hold.ask, self.devices.capacities
        if ask.resource != self.devices.resource:
            return
        hold.indices = tuple([index for index in hold.indices if index < len(capacities)]) or best_fit_devices(
            self.free, capacities, ask
        )
        for index in hold.indices:
            self.free[index] -= ask.on(capacities[index])


def best_fit_devices(free: list[int], capacities: tuple[int, ...], ask: PerDevice) -> tuple[int, ...]:
    """Choose devices as device plugins do, the fullest that fit; where too few fit, the emptiest of the others."""
    asked = [ask.on(capacity) for capacity in capacities] if ask.parts else [ask.amount] * len(capacities)
    left = [(amount - each, index) for index, (amount, each) in enumerate(zip(free, asked, strict=True))]
    fitting = [each for each in left if each[0] >= 0]
    if ask.number == 1 and fitting:
        return (min(fitting)[1],)
    fitting.sort()
    if len(fitting) < ask.number:
        fitting += sorted((each for each in left if each[0] < 0), reverse=True)
    return tuple([index for _, index in fitting[: ask.number]])


def largest(amounts: list[int], capacities: tuple[int, ...], kind: "AskKind") -> int:
    """Tell the most that so many devices all have, in pieces or in parts of a device; 0 where there are too few."""
    if len(amounts) < kind.number:
        return 0
    if kind.parts:
        amounts = [
            amount * kind.parts // capacity if capacity else 0
            for amount, capacity in zip(amounts, capacities, strict=True)
        ]
    return max(amounts) if kind.number == 1 else sorted(amounts)[-kind.number]


class AskKind(NamedTuple):
    """An ask without its amount: asks that differ in the amount alone share an index."""

    resource: ResourceName
    number: int
    parts: int


class DeviceIndex:
    """Which slots have room for an ask on single devices, now and when empty."""

    __slots__ = ("_capacity", "_devices", "_free")

    def __init__(self) -> None:
        self._devices: dict[int, tuple[Devices, list[int]]] = {}  # by slot: what there is, and what of it is free
        self._free: dict[AskKind, AmountIndex] = {}
        self._capacity: dict[AskKind, AmountIndex] = {}

    def change(self, slot: int, devices: Devices, free: list[int]) -> None:
        """Bring a slot up to date."""
        before = self._devices.get(slot)
        if before is None and not devices.capacities:
            return
        self._devices[slot] = (devices, free)
        bit = 1 << slot
        ordered = sorted(free, reverse=True)  # once, for all asks that differ in number alone
        for kind, index in self._free.items():
            if kind.parts or kind.resource != devices.resource:
                index.change(slot, bit, _room(devices, free, kind))
            else:
                index.change(slot, bit, ordered[kind.number - 1] if kind.number <= len(ordered) else 0)
        if before is None or before[0] != devices:
            for kind, index in self._capacity.items():
                index.change(slot, bit, _room(devices, list(devices.capacities), kind))

    def with_room(self, ask: PerDevice) -> int:
        """List the slots that have room now."""
        return self._slots(self._free, ask)

    def with_capacity(self, ask: PerDevice) -> int:
        """List the slots that would have room if they were empty."""
        return self._slots(self._capacity, ask)

    def _slots(self, indexes: dict[AskKind, AmountIndex], ask: PerDevice) -> int:
        kind = AskKind(ask.resource, ask.number, ask.parts)
        index = indexes.get(kind)
        if index is None:
            if len(indexes) >= _KEPT_ASKS:
                del indexes[next(iter(indexes))]
            index = indexes[kind] = AmountIndex()
            for slot, (devices, free) in self._devices.items():
                amounts = free if indexes is self._free else list(devices.capacities)
                index.change(slot, 1 << slot, _room(devices, amounts, kind))
        return index.at_least(ask.amount)


def _room(devices: Devices, amounts: list[int], kind: AskKind) -> int:
    return largest(amounts, devices.capacities, kind) if devices.resource == kind.resource else 0
