"""Moves tried on the fleet itself, step by step, and undone: what earlier plans take is not there for later ones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from webhook.core.defragment.movable_pod import MovablePod
from webhook.core.defragment.move_plan import Moves, Room
from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, Uid
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.victim import GuardId


class _Step(NamedTuple):
    """Room taken (sign 1) or freed (-1) on a node."""

    node: NodeName
    uid: Uid
    demand: Demand
    sign: int
    devices: tuple[int, ...]


class TriedMoves:
    """The fleet after the moves tried so far, the pods that may still be moved, and how many each bound still allows.

    `left` is how many evictions each disruption budget allows; none of a budget that it does not name. At most
    `per_workload` pods of one controller are moved.
    """

    def __init__(
        self,
        fleet: Fleet,
        movable: Iterable[MovablePod],
        *,
        left: Mapping[GuardId, int],
        per_workload: int,
    ) -> None:
        self.fleet = fleet
        self.left: Counter[GuardId] = Counter(left)
        self._per_workload = per_workload
        self._moved: Counter[str] = Counter()
        self._by_node: dict[NodeName, list[MovablePod]] = {}
        self._steps: list[_Step] = []
        for each in movable:
            self._by_node.setdefault(each.node, []).append(each)

    def on(self, node: NodeName) -> list[MovablePod]:
        """Return the pods on a node that may be moved."""
        return [each for each in self._by_node.get(node, ()) if self.may_move(each)]

    def nodes(self) -> Iterable[NodeName]:
        """Return the nodes with such pods."""
        return self._by_node

    def of_workload(self, workload: str) -> int:
        """Return how many pods of a workload may still be moved."""
        return self._per_workload - self._moved[workload]

    def may_move(self, pod: MovablePod, *, with_others: Sequence[MovablePod] = ()) -> bool:
        """Whether its budgets and the bound of its workload allow a pod to move besides these others."""
        same = sum(each.workload == pod.workload for each in with_others)
        drawn = Counter(guard for each in with_others for guard in each.guards) if pod.guards else Counter[GuardId]()
        return same < self.of_workload(pod.workload) and all(self.left[guard] > drawn[guard] for guard in pod.guards)

    def savepoint(self) -> int:
        """Return a name of the present state for `undo`."""
        return len(self._steps)

    def undo(self, savepoint: int) -> None:
        """Restore the room of an earlier state."""
        while len(self._steps) > savepoint:
            step = self._steps.pop()
            self.fleet.take(step.node, step.demand, sign=-step.sign, holder=step.uid, devices=step.devices)

    def free(self, pod: MovablePod) -> None:
        """Free the room of a pod on its node."""
        self._change(pod.node, pod.uid, pod.victim.demand, -1)

    def take(self, node: NodeName, uid: Uid, demand: Demand) -> None:
        """Take room on a node."""
        self._change(node, uid, demand, 1)

    def move(self, found: Moves) -> None:
        """Have pods on their new nodes, where they stay; the room of the target is left free."""
        for pod, to, _ in found.moves:
            self.free(pod)
            self.take(to, pod.uid, pod.victim.demand)
            self._by_node[pod.node].remove(pod)
            self._moved[pod.workload] += 1
            self.left.subtract(pod.guards)

    def withdraw(self, room: Room, savepoint: int) -> None:
        """Take back moves that were made since a savepoint, and the room that was taken."""
        for pod, _, _ in room.moves:
            self._by_node[pod.node].append(pod)
            self._moved[pod.workload] -= 1
            self.left.update(pod.guards)
        self.undo(savepoint)

    def _change(self, node: NodeName, uid: Uid, demand: Demand, sign: int) -> None:
        devices = self.fleet.devices_of(node, uid) if sign < 0 else ()
        self._steps.append(_Step(node, uid, demand, sign, devices))
        self.fleet.take(node, demand, sign=sign, holder=uid, devices=devices)
