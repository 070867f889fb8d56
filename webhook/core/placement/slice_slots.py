"""The nodes whose `nvidia.com/gpu` are parts of GPUs: MIG devices or replicas, as bitmaps of slots by slice."""

from webhook.core.model.names import ResourceName
from webhook.core.model.node import Node


class SliceSlots:
    """Slots by the slice that a piece of `nvidia.com/gpu` is there; `slots` are all of them."""

    __slots__ = ("by_name", "slots")

    def __init__(self) -> None:
        self.by_name: dict[ResourceName, int] = {}
        self.slots = 0

    def change(self, bit: int, before: Node | None, node: Node) -> None:
        """Set the slice of a slot (by its bit) from what its node was before, and is now."""
        name, was = node.slice, None if before is None else before.slice
        if was is not None and was != name:
            self.by_name[was] &= ~bit
            if not self.by_name[was]:
                del self.by_name[was]
        if name is not None:
            self.by_name[name] = self.by_name.get(name, 0) | bit
        self.slots = self.slots & ~bit if name is None else self.slots | bit

    def among(self, bits: int) -> dict[ResourceName, int]:
        """Return the slices of some slots, each with its own ones of them."""
        return {name: bits & slots for name, slots in self.by_name.items() if bits & slots}
