"""The stages of the pods that exist: what each is charged and which room it takes, as time passes and nodes change."""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

from webhook.core.life.pod_life import TERMS, RoomUse, Stage, stage_of
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import ReclaimRules
from webhook.core.world.charged_pods import ChargedPods
from webhook.core.world.pod_index import PodPlace
from webhook.core.world.promises import Promises

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an admin says that a node is shut down: Kubernetes then deletes its pods by force."""

UNUSUAL: Final = frozenset({Stage.STALLED, Stage.OVERDUE, Stage.LOST})
"""The stages at which the charge of a pod may surprise people."""
_BOUND: Final = Stage.BOUND  # access to an enum member costs 0.1 us


def is_lost(node: Node | None) -> bool:
    """Whether nothing can be learned of the pods on a node: it is gone (None), not ready, or out of service."""
    return node is None or not node.is_ready or any(taint.key == OUT_OF_SERVICE for taint in node.taints)


class PodStages:
    """The stage of each pod, and those whose stage changes with time alone: promises end, and deadlines pass.

    `rules` are the policy's: they bound how long reclaim may take. `unusual` are the pods at a stage of UNUSUAL,
    `idle` those on nodes that are marked as not using their GPUs.
    `read_at` is the time of a world that is read once: deadlines are compared with it, promises have no time there.
    """

    def __init__(self, charged: ChargedPods, rules: ReclaimRules) -> None:
        self.rules = rules
        self.unusual: dict[Uid, Stage] = {}
        self.idle: set[Uid] = set()
        self.read_at = 0
        self._charged = charged
        self._now = 0
        self._promises = Promises()
        self._deadlines: list[tuple[int, Uid]] = []
        self._deleted: dict[Uid, int] = {}

    def of(self, uid: Uid) -> Stage | None:
        """Return the stage of a pod's life; None where it is unknown, or waits in line."""
        record = self._charged.pods.get(uid)
        return None if record is None else record.stage

    def place(self, pod: Resident, chosen: NodeName | None) -> PodPlace:
        """Return the stage and the room of a pod now; `chosen` is the node that is promised to it while it has none."""
        if pod.node is not None and not pod.is_terminating:  # most events: spare them what the others need
            if self.unusual:
                self.unusual.pop(pod.uid, None)
            if pod.idle_since:
                self.idle.add(pod.uid)
            elif self.idle:
                self.idle.discard(pod.uid)
            self._promises.end(pod.uid)
            return PodPlace(_BOUND, pod.node)
        self.idle.discard(pod.uid)
        node = None if pod.node is None else self._charged.fleet.get(pod.node)
        stage = stage_of(pod, now=self._now or self.read_at, is_node_lost=is_lost(node))
        if stage in UNUSUAL:
            self.unusual[pod.uid] = stage
        elif self.unusual:
            self.unusual.pop(pod.uid, None)
        if pod.node is None and TERMS[stage].room is RoomUse.PROMISED:
            if pod.nominated is not None:
                return PodPlace(stage, pod.nominated)
            return PodPlace(stage, self._promises.node_of(pod, chosen, stage, now=self._now, rules=self.rules))
        self._promises.end(pod.uid)
        if pod.node is not None and pod.deadline and self._deleted.get(pod.uid) != pod.deadline:
            self._deleted[pod.uid] = pod.deadline
            heappush(self._deadlines, (pod.deadline, pod.uid))
        return PodPlace(stage, pod.node)

    def refresh(self, uids: Iterable[Uid]) -> None:
        """Charge pods and take their room by their stages now."""
        pods = self._charged.pods
        for record in [pods[uid] for uid in uids if uid in pods]:
            if not record.is_reserved:
                self._charged.place(record, self.place(record.pod, record.node))

    def forget(self, uid: Uid) -> None:
        """Forget a pod that is gone."""
        self._promises.end(uid)
        self._deleted.pop(uid, None)
        self.unusual.pop(uid, None)
        self.idle.discard(uid)

    # -- time

    def tick(self, now: int) -> None:
        """Set the time, in seconds of Unix time; the first time concerns every pod that depends on it."""
        is_first, self._now = not self._now, now
        self._charged.ended.tick(now)
        self.refresh([*self._promises.all(), *self._deleted] if is_first else self._due(now))

    def next_due(self) -> int | None:
        """Return when a stage or a room may change next with time alone, in seconds of Unix time; None: never."""
        times = [at for at in (self._promises.next_end(), *(at + 1 for at, _ in self._deadlines[:1])) if at is not None]
        return min(times, default=None)

    def _due(self, now: int) -> list[Uid]:
        """Return the pods whose stage or room may have changed by now, each once."""
        found = self._promises.due(now)
        while self._deadlines and self._deadlines[0][0] < now:
            deadline, uid = heappop(self._deadlines)
            if self._deleted.get(uid) == deadline:
                found.append(uid)
        return found
