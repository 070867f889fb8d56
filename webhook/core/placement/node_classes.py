"""Nodes by class: what their free devices look like, and which sizes of the demand mix their cpu and memory hold.

All nodes of a class cost a pod the same, so classes are scored, not nodes. Members are a bitmap as in index.py.
"""

from typing import NamedTuple

from webhook.core.placement.device_states import DeviceStates, free_of
from webhook.core.placement.fragmentation import Fragmentation, State
from webhook.core.placement.scarcity import Able, Scarcity
from webhook.core.placement.slot_index import AmountIndex
from webhook.core.placement.tier_mix import Tiers


class Kind(NamedTuple):
    """What the nodes of a class have in common: free devices, the marks that cpu and memory reach, by position.

    `capacity` is the number of devices where all of them are free, otherwise 0. `tiers` are those of the pods there.
    """

    devices: State
    cpu: int
    memory: int
    capacity: int
    tiers: Tiers


class NodeClass:
    """A class: how useful its free devices are, which groups of scarce sizes fit, and its members."""

    __slots__ = ("free", "kind", "members", "scarce", "state", "useful")

    def __init__(self, kind: Kind, fragmentation: Fragmentation, states: DeviceStates, scarcity: Scarcity) -> None:
        cpu = fragmentation.cpu.fitting(fragmentation.cpu.marks[kind.cpu])
        memory = fragmentation.memory.fitting(fragmentation.memory.marks[kind.memory])
        self.kind = kind
        self.free = free_of(kind.devices)
        self.state = states.number(kind.devices)
        self.useful = states.worth(self.state, cpu, memory)
        self.scarce = scarcity.fitting(Able(kind.devices, cpu, memory)) if scarcity.groups else 0
        self.members = 0


class NodeClasses:
    """The classes of one GPU resource under one forecast, numbered as they come up, and who is in which."""

    __slots__ = (
        "_forecast",
        "_numbers",
        "_of_slot",
        "_scarcity",
        "able",
        "all",
        "came_up",
        "cpu",
        "emptied",
        "live",
        "states",
        "whole",
    )

    def __init__(self, fragmentation: Fragmentation, states: DeviceStates, scarcity: Scarcity) -> None:
        self.all: list[NodeClass] = []
        self.live = 0  # numbers of the classes that have members, as a bitmap
        self.cpu = AmountIndex()  # classes by the mark that the cpu of their nodes reaches
        self.came_up = 0  # times that a class got its first member
        self.emptied = 0  # times that a class lost its last member
        self.whole = 0  # slots with all of their devices free
        self.able = [0] * len(scarcity.groups)  # slots where the scarce sizes of each group fit
        self.states = states
        self._forecast, self._scarcity = fragmentation, scarcity
        self._numbers: dict[Kind, int] = {}
        self._of_slot: dict[int, int] = {}

    def numbers(self, slots: int) -> set[int]:
        """Tell the classes of some slots; those without such devices have none."""
        of_slot, found = self._of_slot, set()
        while slots:
            low = slots & -slots
            found.add(of_slot.get(low.bit_length() - 1, -1))
            slots ^= low
        return found

    def change(self, slot: int, bit: int, kind: Kind) -> None:
        """Move a slot (and its bit) into its class."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.all)
            self.cpu.change(number, 1 << number, kind.cpu)
            self.all.append(NodeClass(kind, self._forecast, self.states, self._scarcity))
        before = self._of_slot.get(slot)
        if before == number:
            return
        if before is not None:
            self._leave(before, bit)
        self._of_slot[slot] = number
        joined = self.all[number]
        if not joined.members:
            self.live |= 1 << number
            self.came_up += 1
        joined.members |= bit
        if joined.scarce:
            self._change_able(joined.scarce, bit)
        if kind.capacity:
            self.whole |= bit

    def drop(self, slot: int, bit: int) -> None:
        """Take a slot out: its node has no such devices any more."""
        number = self._of_slot.pop(slot, None)
        if number is not None:
            self._leave(number, bit)

    def _leave(self, number: int, bit: int) -> None:
        left = self.all[number]
        left.members ^= bit
        if not left.members:
            self.live ^= 1 << number
            self.emptied += 1
        if left.scarce:
            self._change_able(left.scarce, bit)
        if left.kind.capacity:
            self.whole ^= bit

    def _change_able(self, groups: int, bit: int) -> None:
        for number in range(len(self.able)):
            if groups >> number & 1:
                self.able[number] ^= bit
