"""The nodes by something that each has one of, as bitmaps of slots: their GPU model, what a piece is there."""

from collections.abc import Hashable
from typing import Generic, TypeVar

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
