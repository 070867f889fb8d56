"""Which tiers hold the GPUs of a node, so that placement can keep them apart.

Where guaranteed and borrowing pods share a node, evicting the borrowers frees no whole node. Only pods that are labeled
as borrowing are ever evicted, so all others hold their node as guaranteed ones do.
"""

from collections.abc import Mapping
from typing import Final, NewType

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName, Uid
from webhook.core.model.tier import Tier

Tiers = NewType("Tiers", int)
"""The tiers of the pods that hold GPUs of a resource on a node: 0 none, 1 borrowing, 2 guaranteed, 3 both."""

TIER_MIX_COST: Final[Mapping[Tier, tuple[int, int, int, int]]] = {
    Tier.GUARANTEED: (0, 2, 0, 1),
    Tier.PREEMPTIBLE: (0, 0, 2, 1),
}
"""What a pod of a tier costs by the tiers there: 0 none of the other, 1 both are there, 2 only the other."""

_NO_PODS: Final = (0, 0)


class TierMix:
    """The pods that hold GPUs, counted by node, resource and tier."""

    __slots__ = ("_borrowing", "_counts", "pods")

    def __init__(self) -> None:
        self._borrowing: set[Uid] = set()  # also while they hold nothing: a plan removes pods and restores them
        self.pods: dict[ResourceName, int] = {}  # how many hold GPUs of each resource
        self._counts: dict[tuple[NodeName, ResourceName], tuple[int, int]] = {}

    def on(self, node: NodeName, resource: ResourceName) -> Tiers:
        """Return which tiers hold GPUs of a resource on a node."""
        guaranteed, preemptible = self._counts.get((node, resource), _NO_PODS)
        return Tiers(2 * (guaranteed > 0) + (preemptible > 0))

    def set_borrowed(self, holder: Uid, demand: Demand, *, is_borrowed: bool, on: NodeName | None) -> bool:
        """Set whether a pod borrows; `on` is where it is counted already. Return whether that is new."""
        if is_borrowed == (holder in self._borrowing):
            return False
        if on is not None:
            self.change(on, demand, holder, -1)
        (self._borrowing.add if is_borrowed else self._borrowing.remove)(holder)
        if on is not None:
            self.change(on, demand, holder, 1)
        return True

    def change(self, node: NodeName, demand: Demand, holder: Uid, sign: int) -> None:
        """Count a pod on a node, or (sign -1) remove it."""
        counts, borrows = self._counts, holder in self._borrowing
        for resource, _ in demand.devices:
            key = (node, resource)
            self.pods[resource] = self.pods.get(resource, 0) + sign
            guaranteed, preemptible = counts.get(key, _NO_PODS)
            now = (guaranteed, preemptible + sign) if borrows else (guaranteed + sign, preemptible)
            if now == _NO_PODS:
                del counts[key]
            else:
                counts[key] = now
