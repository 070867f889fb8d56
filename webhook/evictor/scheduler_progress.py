"""Whether kube-scheduler is behind: a pod that it has not come to yet is not at fault for room that it does not use.

kube-scheduler takes pods by priority, and of equal ones the pod that waits longest. Once it has come to a pod that came
later, it has come to this one too.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Final

from webhook.core.model.names import NodeName, Uid
from webhook.core.placement.node_changes import NodeChanges
from webhook.core.reclaim.attempts import Attempts
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.refused_nodes import RefusedNodes

BACKOFF_SECONDS: Final = 15.0
"""How much later another pod must have come: kube-scheduler pauses up to 10 s for a pod that it could not place."""

IDLE_SECONDS: Final = 15.0
"""kube-scheduler that came to no GPU pod for so long is not behind: it has nothing to do. Pods that only wait prove
nothing, since anyone may create thousands that fit nowhere."""


class SchedulerProgress:
    """What each scheduler has come to, against when the room of each held node was free."""

    def __init__(self, attempts: Attempts, *, clock: Callable[[], float], changes: NodeChanges | None = None) -> None:
        self._attempts = attempts
        self._changes = changes or NodeChanges()
        self._looked_free: dict[Uid, int] = {}
        self._unused: dict[Uid, set[NodeName]] = {}
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

    def note_free(self, uids: Iterable[Uid]) -> None:
        """Record to which waiting pods nodes look free now."""
        now = int(self._clock())
        self._looked_free = {uid: self._looked_free.get(uid, now) for uid in uids}

    def note_unused(self, uid: Uid, node: NodeName) -> None:
        """Record that a pod did not use the room that a node kept free for it."""
        self._unused.setdefault(uid, set()).add(node)

    def forget_others(self, waiting: Container[Uid]) -> list[Uid]:
        """Forget the pods that no longer wait among those that did not use their room, and return them."""
        gone = [uid for uid in self._unused if uid not in waiting]
        for uid in gone:
            del self._unused[uid]
        return gone

    def refused_nodes(self) -> RefusedNodes:
        """Return what is known of the reports of schedulers."""
        return RefusedNodes(
            now=int(self._clock()),
            changes=self._changes,
            is_behind=self.has_not_tried,
            looked_free=self._looked_free,
            tried=self._unused,
        )

    def is_behind(self, node: NodeName, gpu_pod: ReclaimPod) -> bool:
        """Whether the scheduler of a pod may not have come to it yet in the room that a node keeps for it."""
        since = self._free_since.get(node)
        return since is None or self.has_not_tried(gpu_pod, since)

    def has_not_tried(self, gpu_pod: ReclaimPod, since: float) -> bool:
        """Whether the scheduler of a pod may not have come to it since a time."""
        latest = self._attempts.latest.items()
        came = (at for (name, priority), at in latest if name == gpu_pod.scheduler and priority <= gpu_pod.priority)
        if max(came, default=0) > since + BACKOFF_SECONDS:
            return False
        return self._clock() < max(since, self._active_at.get(gpu_pod.scheduler, self._began)) + IDLE_SECONDS
