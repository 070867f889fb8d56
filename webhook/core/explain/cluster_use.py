"""How well the GPUs of a cluster are used: four ratios from a few amounts, which also add up over time.

The names are those of the field; the definitions are Fairgate's own (docs/usage.md#ratios).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import GangId, NodeName, Uid
from webhook.core.model.node import Node
from webhook.core.model.policy import Policy


class PodUse(NamedTuple):
    """A pod on a node: the GPU units that it holds, and the gang that it is a member of."""

    node: NodeName
    gpus: Units
    gang: GangId | None = None


class ClusterUse(NamedTuple):
    """Amounts of one moment; each times seconds, added up, is the same of a time range.

    `gpus` are the GPUs of all nodes, `held` those that pods hold. `nodes` are the nodes that have GPUs, `partly` those
    of them of which pods hold a part. `spread` are the GPUs that gangs of several pods hold, and `beyond` those GPUs
    times the part of the gang's nodes beyond the fewest that could hold it.
    """

    gpus: float = 0.0
    held: float = 0.0
    nodes: float = 0.0
    partly: float = 0.0
    spread: float = 0.0
    beyond: float = 0.0

    @property
    def allocation(self) -> float:
        """Return the held part of the GPUs: of the sums of a time range it is the occupancy."""
        return _ratio(self.held, self.gpus)

    @property
    def fragmentation(self) -> float:
        """Return the part of the nodes of which a part is held."""
        return _ratio(self.partly, self.nodes)

    @property
    def beyond_fewest(self) -> float:
        """Return the part of a gang's nodes beyond the fewest that could hold it, over all GPUs that gangs hold."""
        return _ratio(self.beyond, self.spread)


def _ratio(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def capacities(nodes: Iterable[Node], policy: Policy) -> dict[NodeName, Units]:
    """Return the GPU units of the nodes that have some, as policy weighs them."""
    return {node.name: units for node in nodes if (units := node.gpus(policy.resources)) > 0}


class PodsOnNodes:
    """What pods hold on nodes, by node and by gang, kept by changes."""

    def __init__(self) -> None:
        self.held_on: dict[NodeName, Units] = {}
        self._pods: dict[Uid, PodUse] = {}
        self._gangs: dict[GangId, dict[Uid, PodUse]] = {}
        self._beyond: dict[GangId, tuple[Units, Units, float]] = {}

    def set(self, uid: Uid, pod: PodUse | None) -> None:
        """Add a pod, or what it is now; None if it is on no node any more."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(uid, before, -1)
        if pod is not None and pod.gpus > 0:
            self._pods[uid] = pod
            self._count(uid, pod, 1)

    def use(self, gpus: Mapping[NodeName, Units]) -> ClusterUse:
        """Return the amounts of this moment, with the GPU units of each node."""
        held = {node: min(units, gpus[node]) for node, units in self.held_on.items() if node in gpus}
        largest = max(gpus.values(), default=0)
        gangs = [self._of_gang(gang, largest) for gang, members in self._gangs.items() if len(members) > 1]
        return ClusterUse(
            gpus=float(sum(gpus.values()) / ONE_GPU),
            held=float(sum(held.values()) / ONE_GPU),
            nodes=float(len(gpus)),
            partly=float(sum(units < gpus[node] for node, units in held.items())),
            spread=float(sum(units for units, _ in gangs) / ONE_GPU),
            beyond=float(sum(float(units) * part for units, part in gangs) / ONE_GPU),
        )

    def _count(self, uid: Uid, pod: PodUse, sign: int) -> None:
        left = self.held_on.get(pod.node, 0) + sign * pod.gpus
        if left:
            self.held_on[pod.node] = left
        else:
            self.held_on.pop(pod.node, None)
        if pod.gang is not None:
            members = self._gangs.setdefault(pod.gang, {})
            if sign > 0:
                members[uid] = pod
            else:
                del members[uid]
            if not members:
                del self._gangs[pod.gang]
            self._beyond.pop(pod.gang, None)

    def _of_gang(self, gang: GangId, largest: Units) -> tuple[Units, float]:
        """Return the GPU units of a gang, and the part of its nodes beyond the fewest; found again after a change."""
        known = self._beyond.get(gang)
        if known is None or known[0] != largest:
            members = self._gangs[gang].values()
            units: Units = sum(each.gpus for each in members)
            part = beyond_fewest([each.gpus for each in members], len({each.node for each in members}), largest)
            known = self._beyond[gang] = largest, units, part
        return known[1:]


def beyond_fewest(pods: Iterable[Units], nodes: int, largest: Units) -> float:
    """Return the part of `nodes` beyond the fewest that could hold these pods, were all as large as the largest.

    Pods of one size fill nodes as far as whole ones fit; of several sizes only the sum counts.
    """
    sizes = list(pods)
    if not sizes or not nodes or largest <= 0:
        return 0.0
    size, per_node = max(sizes), largest // max(sizes)
    is_even = min(sizes) == size and per_node > 0
    fewest = -(-len(sizes) // per_node) if is_even else -(-sum(sizes) // largest)
    return max(0.0, float(nodes - fewest) / nodes)
