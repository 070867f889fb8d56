"""Whether kube-scheduler is behind: a pod that it has not come to yet is not at fault for room that it does not use.

kube-scheduler takes pods by priority, and of equal ones the pod that waits longest. Once it has placed a pod that came
later, it has come to this one too.
"""

from collections.abc import Callable
from typing import Final

from webhook.core.model.names import NodeName
from webhook.core.reclaim.placements import Placements

BACKOFF_SECONDS: Final = 15.0
"""How much later another pod must have come: kube-scheduler lets a pod that it could not place rest for up to 10 s."""

IDLE_SECONDS: Final = 15.0
"""kube-scheduler that has placed no GPU pod for so long is not behind: it has nothing that it can place. Pods that only
wait prove nothing, since anyone may create thousands that fit nowhere."""


class SchedulerProgress:
    """What kube-scheduler has placed, against when the room of each held node was free."""

    def __init__(self, placements: Placements, *, clock: Callable[[], float]) -> None:
        self._placements = placements
        self._clock = clock
        self._count = placements.count
        self._placed_at = clock()
        self._free_since: dict[NodeName, float] = {}
        self._newest: dict[int, float] = {}  # by priority, when the room of a placed pod was free

    def look(self) -> None:
        """Take note of the pods that were placed since the last look."""
        if self._placements.count != self._count:
            self._count, self._placed_at = self._placements.count, self._clock()

    def set_free(self, node: NodeName, *, is_free: bool) -> None:
        """Record whether all room that a node keeps is free now."""
        if is_free:
            self._free_since.setdefault(node, self._clock())
        else:
            self._free_since.pop(node, None)

    def used(self, node: NodeName, *, priority: int) -> None:
        """Record that kube-scheduler placed a pod that room was kept for on a node."""
        if (since := self._free_since.get(node)) is not None:
            self._newest[priority] = max(since, self._newest.get(priority, 0.0))

    def is_behind(self, node: NodeName, *, priority: int) -> bool:
        """Whether kube-scheduler may not have come yet to a pod that a node keeps room for."""
        since = self._free_since.get(node)
        if since is None:
            return True
        came = (at for newest in (self._newest, self._placements.newest) for p, at in newest.items() if p <= priority)
        if max(came, default=0.0) > since + BACKOFF_SECONDS:
            return False
        return self._clock() < max(since, self._placed_at) + IDLE_SECONDS
