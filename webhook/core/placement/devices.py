"""GPUs of a node one by one.

The distinct states of free devices under one demand mix, by number, with the results computed for them.

Classes come and go all the time, but they share states, and so do pod shapes that differ only in cpu and memory:
nothing here is computed twice. Numbers are faster to look up than states are.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Generic, NamedTuple, TypeVar

from webhook.core.model.amounts import HOST_PORT, ResourceName, Uid
from webhook.core.model.demand import PerDevice, Shape
from webhook.core.model.node import NO_DEVICES, Devices, Node
from webhook.core.placement.fragmentation import WHOLE, DeviceState, Fragmentation, after, useful

_MAX_RESULTS: Final = 65_536
"""About 10 MB; a cluster of many node types and 150 shapes needs a few thousand at a time."""


class Remainder(NamedTuple):
    """What remains of a state after a pod: the number of the new state, and its free thousandths."""

    state: int
    free: int


def free_of(state: DeviceState) -> int:
    """Return the sum of free devices, in thousandths."""
    return state.whole * WHOLE + sum(state.partly)


class DeviceStates:
    """All states by number."""

    __slots__ = ("_all", "_forecast", "_numbers", "_remainders", "_usefulness")

    def __init__(self, fragmentation: Fragmentation) -> None:
        self._forecast = fragmentation
        self._all: list[DeviceState] = []
        self._numbers: dict[DeviceState, int] = {}
        self._usefulness: dict[tuple[int, int, int], int] = {}
        self._remainders: dict[Shape, dict[int, Remainder | None]] = {}

    def number(self, state: DeviceState) -> int:
        """Return the number of a state."""
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = len(self._all)
            self._all.append(state)
        return known

    def usefulness(self, number: int, cpu: int, memory: int) -> int:
        """Return how useful the free devices of a state are beside these numbers of steps of cpu and of memory."""
        key = (number, cpu, memory)
        known = self._usefulness.get(key)
        if known is None:
            if len(self._usefulness) >= _MAX_RESULTS:
                self._usefulness.clear()
            state = self._all[number]
            known = self._usefulness[key] = useful(state, self._forecast.profile(state.size, cpu, memory))
        return known

    def remainders(self, shape: Shape) -> dict[int, Remainder | None]:
        """Return the cached remainders of a shape, by number of the state, to read and to extend."""
        return self._remainders.setdefault(shape._replace(cpu=0, memory=0), {})

    def remainder(self, number: int, shape: Shape) -> Remainder | None:
        """Return what a shape leaves of a state; None where its devices do not fit."""
        state = after(self._all[number], shape)
        return None if state is None else Remainder(self.number(state), free_of(state))


# The nodes by something that each has one of, as bitmaps of slots: their GPU model, what a piece is there.


_Key = TypeVar("_Key", bound=Hashable)


class KeyedSlots(Generic[_Key]):
    """Slots by key; `slots` are all that have one."""

    def __init__(self) -> None:
        self.by_key: dict[_Key, int] = {}
        self.slots = 0

    def change(self, bit: int, before: _Key | None, now: _Key | None) -> None:
        """Set the key of a slot (by its bit) from what it was before, and is now; None for none."""
        if before is not None and before != now:
            self.by_key[before] &= ~bit
            if not self.by_key[before]:
                del self.by_key[before]
        if now is not None:
            self.by_key[now] = self.by_key.get(now, 0) | bit
        self.slots = self.slots & ~bit if now is None else self.slots | bit

    def among(self, bits: int) -> dict[_Key, int]:
        """Return the keys of some slots, each with its own ones of them."""
        return {key: bits & slots for key, slots in self.by_key.items() if bits & slots}


# Nodes by free amount, updated by events, so that no decision scans nodes.
#
# Sets of nodes are bitmaps: Python integers with one bit per node ("slot"), whose AND, OR and lowest bit take about a
# microsecond at 20,000 nodes. A query is a handful of ANDs: nodes that meet the pod's constraints, that are open, that
# have this much cpu, memory and pods free, and, class by class, this many of its GPUs free.


_CHUNK_BITS: Final = 512
_CHUNK: Final = (1 << _CHUNK_BITS) - 1

_MAX_AMOUNTS: Final = 64
"""Request sizes remembered per resource: a cluster's templates use a few dozen sizes; a new one costs one pass."""


def lowest_slots(bits: int, count: int, slots: list[int]) -> None:
    """Append the lowest slots of a bitmap to a list until it has `count` of them.

    Works in chunks: taking bits off a short integer does not copy the whole bitmap each time. Empty chunks are skipped
    in doubling strides: reading the low end of a bitmap is cheap, shifting the rest of it down is not.
    """
    missing = count - len(slots)
    base = 0
    while bits and missing:
        chunk = bits & _CHUNK
        if not chunk:
            highest = bits.bit_length() - 1
            if bits == 1 << highest:  # one node, as most classes have in clusters of many node types
                slots.append(base + highest)
                return
            stride = _CHUNK_BITS
            while not bits & _ones(2 * stride):
                stride *= 2
            bits >>= stride
            base += stride
            continue
        while chunk:
            low = chunk & -chunk
            slots.append(base + low.bit_length() - 1)
            missing -= 1
            if not missing:
                return
            chunk ^= low
        bits >>= _CHUNK_BITS
        base += _CHUNK_BITS


def lowest_slot(bits: int) -> int:
    """Return the lowest slot of a bitmap that is not empty."""
    low = bits & _CHUNK or bits  # a short integer in most cases
    return (low & -low).bit_length() - 1


@cache
def _ones(width: int) -> int:
    return (1 << width) - 1


class AmountIndex:
    """One resource: which slots have at least a given amount of it."""

    __slots__ = ("_amounts", "_held", "known")

    def __init__(self) -> None:
        self._held: list[int] = []
        self._amounts: list[int] = []  # sorted keys of `known`
        self.known: dict[int, int] = {}  # requested amount -> slots with at least that

    def held(self, slot: int) -> int:
        """Return the amount of one slot."""
        return self._held[slot] if slot < len(self._held) else 0

    def held_at(self, slots: Sequence[int]) -> list[int]:
        """Return the amounts of some slots."""
        held = self._held
        if slots and max(slots) < len(held):
            return [held[slot] for slot in slots]
        return [self.held(slot) for slot in slots]

    def change(self, slot: int, bit: int, amount: int) -> None:
        """Set the amount of a slot (and its bit); only remembered sizes between old and new amount are updated."""
        held = self._held
        try:
            before = held[slot]
        except IndexError:
            before = 0
            held.extend([0] * (slot + 1 - len(held)))
        if before == amount:
            return
        held[slot] = amount
        amounts = self._amounts
        first, last = (before, amount) if before < amount else (amount, before)
        start = bisect_right(amounts, first)
        if start < len(amounts) and amounts[start] <= last:
            known = self.known
            for crossed in amounts[start : bisect_right(amounts, last, start)]:
                known[crossed] ^= bit

    def at_least(self, amount: int) -> int:
        """Return the slots with at least an amount (above 0)."""
        bits = self.known.get(amount)
        return self.learn(amount) if bits is None else bits

    def most(self, slots: int) -> int:
        """Return the largest amount of one of these slots."""
        held = (amount for amount, bit in zip(self._held, reversed(f"{slots:b}"), strict=False) if bit == "1")
        return max(held, default=0)

    def learn(self, amount: int) -> int:
        """Return the slots with at least an amount (above 0) that is not in `known`, and remember it there."""
        if len(self.known) >= _MAX_AMOUNTS:
            oldest = next(iter(self.known))
            del self.known[oldest]
            del self._amounts[bisect_left(self._amounts, oldest)]
        mask = bytearray((len(self._held) >> 3) + 1)
        for slot, held in enumerate(self._held):
            if held >= amount:
                mask[slot >> 3] |= 1 << (slot & 7)
        bits = int.from_bytes(mask, "little")
        self.known[amount] = bits
        insort(self._amounts, amount)
        return bits


class OneEach(AmountIndex):
    """A resource of which every node has one, such as a host port; `change` sets what is left where it is taken."""

    __slots__ = ("_left", "_taken")

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[int, int] = {}
        self._taken = 0

    def held(self, slot: int) -> int:
        """Return the amount of one slot."""
        return self._left.get(slot, 1)

    def held_at(self, slots: Sequence[int]) -> list[int]:
        """Return the amounts of some slots."""
        return [self._left.get(slot, 1) for slot in slots]

    def change(self, slot: int, bit: int, amount: int) -> None:
        """Set the amount of a slot (and its bit)."""
        self._taken &= ~bit
        self._left.pop(slot, None)
        if amount < 1:
            self._taken |= bit
            self._left[slot] = amount

    def at_least(self, amount: int) -> int:
        """Return the slots with at least an amount (above 0)."""
        return ~self._taken if amount == 1 else 0

    def learn(self, amount: int) -> int:
        """Return the same: nothing is remembered."""
        return self.at_least(amount)

    def most(self, slots: int) -> int:
        """Return the largest amount of one of these slots."""
        return int(bool(slots & ~self._taken))


class AmountIndexes(dict[ResourceName, AmountIndex]):
    """The indexes of resources, each made when it is first set."""

    def __missing__(self, resource: ResourceName) -> AmountIndex:
        """Return a new index."""
        index = self[resource] = OneEach() if resource.startswith(HOST_PORT) else AmountIndex()
        return index


_UNTAKEN: Final = OneEach()


def index_of(indexes: Mapping[ResourceName, AmountIndex], resource: ResourceName) -> AmountIndex | None:
    """Return the index of a resource; None where no node has it."""
    index = indexes.get(resource)
    return _UNTAKEN if index is None and resource.startswith(HOST_PORT) else index


def with_amounts(
    indexes: Mapping[ResourceName, AmountIndex], requests: Sequence[tuple[ResourceName, int]], among: int
) -> int:
    """Return those of the slots that have all these amounts."""
    for resource, amount in requests:
        index = indexes.get(resource) or index_of(indexes, resource)
        if index is None:
            return 0
        bits = index.known.get(amount)
        among &= index.learn(amount) if bits is None else bits
    return among


# The GPUs of nodes that share them in parts: the free room of each device, and the pods that hold it.
#
# A share needs its room on one device: two free halves on two devices are not a whole. Only resources that are packed
# per device are here (`Node.devices`); resources that a device plugin counts in pieces, whole GPUs among them, are
# plain amounts.


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


# The devices that nodes have and do not offer now: one is unhealthy, or their plugin restarts.
#
# Only nodes that offer fewer devices than they have are in these indexes, with what they have at their best.


class MissingDevices:
    """What nodes have at their best, by slot."""

    def __init__(self) -> None:
        self._amounts: dict[ResourceName, AmountIndex] = {}
        self._devices = DeviceIndex()

    def __bool__(self) -> bool:
        """Whether any node has ever offered less than it had."""
        return bool(self._amounts)

    def change(self, slot: int, before: Node | None, node: Node) -> None:
        """Update a slot from what its node was before, and is now."""
        for resource in node.at_best.keys() | (before.at_best.keys() if before else frozenset()):
            index = self._amounts.get(resource)
            if index is None:
                index = self._amounts[resource] = AmountIndex()
            index.change(slot, 1 << slot, node.at_best.get(resource, 0))
        self._devices.change(slot, node.devices_at_best, list(node.devices_at_best.capacities))

    def at_least(self, resource: ResourceName, amount: int) -> int:
        """Return the slots that have this amount of a resource at their best."""
        index = self._amounts.get(resource)
        return 0 if index is None else index.at_least(amount)

    def most(self, resource: ResourceName, slots: int) -> int:
        """Return the largest amount of a resource that one of the slots has at its best."""
        index = self._amounts.get(resource)
        return 0 if index is None else index.most(slots)

    def held_at(self, slots: Sequence[int], resource: ResourceName) -> list[int]:
        """Return the amounts of a resource that some slots have at their best."""
        index = self._amounts.get(resource)
        return [0] * len(slots) if index is None else index.held_at(slots)

    def with_capacity(self, request: PerDevice) -> int:
        """Return the slots that would have room on single devices at their best."""
        return self._devices.with_capacity(request)
