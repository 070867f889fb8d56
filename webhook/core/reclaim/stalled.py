"""Charged pods that something else than room keeps off every node, and which of them have been so for too long.

They keep a charge for nothing: that of their team, and of the departments above it. A charge cannot end before its pod,
which may be bound at any moment.
"""

from collections.abc import Iterable

from webhook.core.model.amount import Limit, Unlimited
from webhook.core.model.names import Uid
from webhook.core.reclaim.reclaim_pod import ReclaimPod


class StalledPods:
    """When each stalled pod was first seen so, in seconds of Unix time: its conditions keep an earlier time."""

    def __init__(self) -> None:
        self._since: dict[Uid, float] = {}

    def overdue(self, stalled: Iterable[ReclaimPod], *, now: float, bound_seconds: Limit) -> list[ReclaimPod]:
        """Return those of the pods that are stalled now that have been for longer than the bound, the first ones first.

        A pod that is no longer stalled begins again from the start.
        """
        there = {gpu_pod.uid: gpu_pod for gpu_pod in stalled}
        self._since = {uid: self._since.get(uid, now) for uid in there}
        if isinstance(bound_seconds, Unlimited):
            return []
        late = [(since, uid) for uid, since in self._since.items() if since + bound_seconds <= now]
        return [there[uid] for _, uid in sorted(late)]
