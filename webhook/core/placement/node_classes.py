"""Node classes: nodes with the same free devices and room for the same sizes of the demand mix.

All nodes of a class cost a pod the same, so classes are scored, not nodes. Members are a bitmap of slots.
"""

from collections.abc import Sequence
from typing import NamedTuple

from webhook.core.placement.device_states import DeviceStates, free_of
from webhook.core.placement.fragmentation import DeviceState, Fragmentation
from webhook.core.placement.scarcity import NodeRoom, Scarcity
from webhook.core.placement.slot_index import AmountIndex
from webhook.core.placement.tier_mix import Tiers


class NodeClassKey(NamedTuple):
    """The key of a class: free devices, and the marks that free cpu and memory reach, by position.

    `capacity` is the number of devices where all of them are free, otherwise 0. `tiers` are those of the pods on the
    node.
    """

    devices: DeviceState
    cpu: int
    memory: int
    capacity: int
    tiers: Tiers


class NodeClass:
    """A class: how useful its free devices are, which groups of scarce sizes fit, and its members."""

    __slots__ = ("free", "kind", "members", "scarce", "state", "useful")

    def __init__(
        self, kind: NodeClassKey, fragmentation: Fragmentation, states: DeviceStates, scarcity: Scarcity
    ) -> None:
        cpu = fragmentation.cpu.fitting(fragmentation.cpu.marks[kind.cpu])
        memory = fragmentation.memory.fitting(fragmentation.memory.marks[kind.memory])
        self.kind = kind
        self.free = free_of(kind.devices)
        self.state = states.number(kind.devices)
        self.useful = states.usefulness(self.state, cpu, memory)
        self.scarce = scarcity.fitting(NodeRoom(kind.devices, cpu, memory)) if scarcity.groups else 0
        self.members = 0


class NodeClasses:
    """The node classes of one GPU resource under one demand mix, numbered in order of creation."""

    __slots__ = (
        "_class_of_slot",
        "_forecast",
        "_numbers",
        "_scarcity",
        "all",
        "cpu",
        "emptied",
        "filled",
        "live",
        "slots_with_room",
        "states",
        "whole",
    )

    def __init__(self, fragmentation: Fragmentation, states: DeviceStates, scarcity: Scarcity) -> None:
        self.all: list[NodeClass] = []
        self.live = 0  # numbers of the classes that have members, as a bitmap
        self.cpu = AmountIndex()  # classes by the mark that their nodes' free cpu reaches
        self.filled = 0  # times that a class got its first member
        self.emptied = 0  # times that a class lost its last member
        self.whole = 0  # slots with all of their devices free
        self.slots_with_room = [0] * len(scarcity.groups)  # by group of scarce sizes: the slots where they fit
        self.states = states
        self._forecast, self._scarcity = fragmentation, scarcity
        self._numbers: dict[NodeClassKey, int] = {}
        self._class_of_slot: dict[int, int] = {}

    def numbers(self, slots: int) -> set[int]:
        """Return the numbers of the classes of some slots; -1 for slots without such devices."""
        class_of_slot, found = self._class_of_slot, set()
        while slots:
            low = slots & -slots
            found.add(class_of_slot.get(low.bit_length() - 1, -1))
            slots ^= low
        return found

    def useful_at(self, slots: Sequence[int]) -> list[int]:
        """Return how useful the free devices of each of some slots are; 0 without such devices."""
        classes, number_of = self.all, self._class_of_slot
        return [classes[number].useful if (number := number_of.get(slot, -1)) >= 0 else 0 for slot in slots]

    def change(self, slot: int, bit: int, kind: NodeClassKey) -> None:
        """Move a slot (and its bit) into its class."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.all)
            self.cpu.change(number, 1 << number, kind.cpu)
            self.all.append(NodeClass(kind, self._forecast, self.states, self._scarcity))
        before = self._class_of_slot.get(slot)
        if before == number:
            return
        if before is not None:
            self._leave(before, bit)
        self._class_of_slot[slot] = number
        entered = self.all[number]
        if not entered.members:
            self.live |= 1 << number
            self.filled += 1
        entered.members |= bit
        if entered.scarce:
            self._change_slots_with_room(entered.scarce, bit)
        if kind.capacity:
            self.whole |= bit

    def drop(self, slot: int, bit: int) -> None:
        """Remove a slot: its node no longer has such devices."""
        number = self._class_of_slot.pop(slot, None)
        if number is not None:
            self._leave(number, bit)

    def _leave(self, number: int, bit: int) -> None:
        left = self.all[number]
        left.members ^= bit
        if not left.members:
            self.live ^= 1 << number
            self.emptied += 1
        if left.scarce:
            self._change_slots_with_room(left.scarce, bit)
        if left.kind.capacity:
            self.whole ^= bit

    def _change_slots_with_room(self, groups: int, bit: int) -> None:
        for number in range(len(self.slots_with_room)):
            if groups >> number & 1:
                self.slots_with_room[number] ^= bit
