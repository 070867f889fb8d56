"""Whether kube-scheduler is behind: a pod that it has not come to yet is not at fault for room that it does not use.

kube-scheduler takes pods by priority, and of equal ones the pod that waits longest. Once it has come to a pod that came
later, it has come to this one too.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from webhook.core.model.names import NodeName
from webhook.core.reclaim.attempts import Attempts
from webhook.core.reclaim.reclaim_pod import ReclaimPod

BACKOFF_SECONDS: Final = 15.0
"""How much later another pod must have come: kube-scheduler pauses up to 10 s for a pod that it could not place."""

IDLE_SECONDS: Final = 15.0
"""kube-scheduler that came to no GPU pod for so long is not behind: it has nothing to do. Pods that only wait prove
nothing, since anyone may create thousands that fit nowhere."""


class SchedulerProgress:
    """What each scheduler has come to, against when the room of each held node was free."""

    def __init__(self, attempts: Attempts, *, clock: Callable[[], float]) -> None:
        self._attempts = attempts
        self._clock = clock
        self._began = clock()
        self._count = Counter(attempts.count)
        self._active_at: dict[str, float] = {}  # by scheduler
        self._free_since: dict[NodeName, float] = {}

    def look(self) -> None:
        """Take note of the pods that schedulers came to since the last look."""
        for scheduler, count in self._attempts.count.items():
            if count != self._count[scheduler]:
                self._count[scheduler], self._active_at[scheduler] = count, self._clock()

    def set_free(self, node: NodeName, *, is_free: bool) -> None:
        """Record whether all room that a node keeps is free now."""
        if is_free:
            self._free_since.setdefault(node, self._clock())
        else:
            self._free_since.pop(node, None)

    def is_behind(self, node: NodeName, gpu_pod: ReclaimPod) -> bool:
        """Whether the scheduler of a pod may not have come to it yet in the room that a node keeps for it."""
        since = self._free_since.get(node)
        if since is None:
            return True
        latest = self._attempts.latest.items()
        came = (at for (name, priority), at in latest if name == gpu_pod.scheduler and priority <= gpu_pod.priority)
        if max(came, default=0) > since + BACKOFF_SECONDS:
            return False
        return self._clock() < max(since, self._active_at.get(gpu_pod.scheduler, self._began)) + IDLE_SECONDS
