"""Nodes by free amount, updated by events, so that no decision scans nodes.

Sets of nodes are bitmaps: Python integers with one bit per node ("slot"), whose AND, OR and lowest bit take about a
microsecond at 20,000 nodes. A query is a handful of ANDs: nodes that meet the pod's constraints, that are open, that
have this much cpu, memory and pods free, and, class by class, this many of its GPUs free.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from webhook.core.model.names import HOST_PORT, ResourceName

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
