"""The stages of the pods that exist, as the world's time and nodes change: which pods are to be looked at again."""

from heapq import heappop, heappush
from typing import Final, NamedTuple

from webhook.core.life.pod_life import TERMS, Room, Stage, stage_of
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import ReclaimRules
from webhook.core.world.promises import Promises

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an admin says that a node is shut down: Kubernetes then deletes its pods by force."""

UNUSUAL: Final = frozenset({Stage.STALLED, Stage.OVERDUE, Stage.LOST})
"""The stages at which the charge of a pod may surprise people."""


class Place(NamedTuple):
    """The stage of a pod, and the node whose room it takes; None for none."""

    stage: Stage
    node: NodeName | None


def is_lost(node: Node | None) -> bool:
    """Whether nothing can be learned of the pods on a node: it is gone (None), not ready, or out of service."""
    return node is None or not node.is_ready or any(taint.key == OUT_OF_SERVICE for taint in node.taints)


class PodStages:
    """The pods whose stage or room changes with time alone: promises end, and deadlines of deletions pass."""

    def __init__(self) -> None:
        self._promises = Promises()
        self._deadlines: list[tuple[int, Uid]] = []
        self._deleted: dict[Uid, int] = {}
        self.unusual: dict[Uid, Stage] = {}
        """The pods at a stage of UNUSUAL."""

    def place(
        self, pod: Resident, chosen: NodeName | None, node: Node | None, *, now: int, rules: ReclaimRules
    ) -> Place:
        """Return the stage and the room of a pod now.

        `chosen` is the node that is promised to it while it has none, `node` the one that it is on, if that is known.
        """
        stage = stage_of(pod, now=now, is_node_lost=is_lost(node))
        if stage in UNUSUAL:
            self.unusual[pod.uid] = stage
        elif self.unusual:
            self.unusual.pop(pod.uid, None)
        if pod.node is None:
            if TERMS[stage].room is Room.PROMISED:
                return Place(stage, self._promises.node_of(pod, chosen, stage, now=now, rules=rules))
            self._promises.end(pod.uid)
            return Place(stage, None)
        self._promises.end(pod.uid)
        if pod.deadline and self._deleted.get(pod.uid) != pod.deadline:
            self._deleted[pod.uid] = pod.deadline
            heappush(self._deadlines, (pod.deadline, pod.uid))
        return Place(stage, pod.node)

    def forget(self, uid: Uid) -> None:
        """Forget a pod that is gone."""
        self._promises.end(uid)
        self._deleted.pop(uid, None)
        self.unusual.pop(uid, None)

    def next_due(self) -> int | None:
        """Return when a stage or a room may change next with time alone, in seconds of Unix time; None: never."""
        times = [at for at in (self._promises.next_end(), *(at + 1 for at, _ in self._deadlines[:1])) if at is not None]
        return min(times, default=None)

    def due(self, now: int, *, is_first: bool = False) -> list[Uid]:
        """Return the pods whose stage or room may have changed by now, with time alone; each once.

        `is_first`: the time was not known before, so that is every pod that depends on it.
        """
        if is_first:
            return [*self._promises.all(), *self._deleted]
        found = self._promises.due(now)
        while self._deadlines and self._deadlines[0][0] < now:
            deadline, uid = heappop(self._deadlines)
            if self._deleted.get(uid) == deadline:
                found.append(uid)
        return found
