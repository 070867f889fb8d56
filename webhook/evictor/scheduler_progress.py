"""Whether kube-scheduler is behind: a pod that it has not come to yet is not at fault for room that it does not use.

kube-scheduler takes pods by priority, and of equal ones the pod that waits longest. Once it has placed a pod that came
later, it has come to this one too.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from webhook.core.model.names import NodeName
from webhook.core.reclaim.placements import Placements
from webhook.core.reclaim.reclaim_pod import ReclaimPod

BACKOFF_SECONDS: Final = 15.0
"""How much later another pod must have come: kube-scheduler lets a pod that it could not place rest for up to 10 s."""

IDLE_SECONDS: Final = 15.0
"""kube-scheduler that has placed no GPU pod for so long is not behind: it has nothing that it can place. Pods that only
wait prove nothing, since anyone may create thousands that fit nowhere."""


class SchedulerProgress:
    """What each scheduler has placed, against when the room of each held node was free."""

    def __init__(self, placements: Placements, *, clock: Callable[[], float]) -> None:
        self._placements = placements
        self._clock = clock
        self._began = clock()
        self._count = Counter(placements.count)
        self._placed_at: dict[str, float] = {}  # by scheduler
        self._free_since: dict[NodeName, float] = {}
        self._newest: dict[tuple[str, int], float] = {}  # when the room of placed pods was free, as in Placements

    def look(self) -> None:
        """Take note of the pods that were placed since the last look."""
        for scheduler, count in self._placements.count.items():
            if count != self._count[scheduler]:
                self._count[scheduler], self._placed_at[scheduler] = count, self._clock()

    def set_free(self, node: NodeName, *, is_free: bool) -> None:
        """Record whether all room that a node keeps is free now."""
        if is_free:
            self._free_since.setdefault(node, self._clock())
        else:
            self._free_since.pop(node, None)

    def used(self, node: NodeName, gpu_pod: ReclaimPod) -> None:
        """Record that a pod was placed on the node that kept room for it."""
        if (since := self._free_since.get(node)) is not None:
            key = gpu_pod.scheduler, gpu_pod.priority
            self._newest[key] = max(since, self._newest.get(key, 0.0))

    def is_behind(self, node: NodeName, gpu_pod: ReclaimPod) -> bool:
        """Whether the scheduler of a pod may not have come to it yet in the room that a node keeps for it."""
        since = self._free_since.get(node)
        if since is None:
            return True
        came = [
            at
            for newest in (self._newest, self._placements.newest)
            for (scheduler, priority), at in newest.items()
            if scheduler == gpu_pod.scheduler and priority <= gpu_pod.priority
        ]
        if max(came, default=0.0) > since + BACKOFF_SECONDS:
            return False
        return self._clock() < max(since, self._placed_at.get(gpu_pod.scheduler, self._began)) + IDLE_SECONDS
