"""Promises of room: the node that was chosen for a pod without a node, for as long as the pod may still go there.

A promise keeps the room from pods that are placed after it. Each ends: when the pod has a node, when the pod goes, or
after a time by the pod's stage. Nothing depends on a promise but where others are placed: kube-scheduler and reclaim
count pods on nodes only. Times are those at which this world saw a pod, in seconds of Unix time: conditions of pods
keep the time of an earlier state.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from webhook.core.life.pod_life import Stage
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.policy import ReclaimRules
from webhook.core.model.tier import Tier

UNREPORTED_SECONDS: Final = 300
"""Of a pod that no scheduler has reported on: kube-scheduler is behind, or the pod's own scheduler does not run."""

BORROWING_SECONDS: Final = 60
"""Of a borrowing pod for which no node has room: it must not keep free GPUs from pods inside their shares."""

RECLAIM_SECONDS: Final = 330
"""Of a pod inside its share for which no node has room, beyond notice and the longest grace period: the evictor holds
room no longer."""

STALLED_SECONDS: Final = 10
"""Of a pod that something else than room keeps off every node: claims and volumes are created moments after it."""


@dataclass(slots=True)
class _Promise:
    """The node, when the pod was first seen without one, its stage, and since when it is at that.

    `end` is when the promise is over as things are.
    """

    node: NodeName
    first: int
    stage: Stage
    since: int
    end: int = -1
    is_over: bool = False


class Promises:
    """The promises of pods without a node, by UID. A promise that is over does not come back."""

    def __init__(self) -> None:
        self._promises: dict[Uid, _Promise] = {}
        self._due: list[tuple[int, Uid]] = []

    def __len__(self) -> int:
        return len(self._promises)

    def node_of(
        self, pod: Resident, node: NodeName | None, stage: Stage, *, now: int, rules: ReclaimRules
    ) -> NodeName | None:
        """Return the node whose room a pod without a node takes now, of the one that is promised; None for none."""
        known = self._promises.get(pod.uid)
        if known is None:
            if node is None:
                return None
            known = self._promises[pod.uid] = _Promise(node, now, stage, now)
        elif known.stage is not stage:
            known.stage, known.since = stage, now
        if not known.is_over:
            end = _end(known, pod, rules)
            known.is_over = end <= now
            if end != known.end and not known.is_over:
                known.end = end
                heappush(self._due, (end, pod.uid))
        return None if known.is_over else known.node

    def end(self, uid: Uid) -> None:
        """Forget a pod that has a node, or is gone; one without a promise changes nothing."""
        if self._promises and self._promises.pop(uid, None) is not None and not self._promises:
            self._due.clear()

    def all(self) -> list[Uid]:
        """Return the pods with a promise, over or not."""
        return list(self._promises)

    def next_end(self) -> int | None:
        """Return when a promise may be over next; None where there is none."""
        return self._due[0][0] if self._due else None

    def due(self, now: int) -> list[Uid]:
        """Return the pods whose promises may be over by now; ask `node_of` about each again."""
        found: dict[Uid, None] = {}
        while self._due and self._due[0][0] <= now:
            _, uid = heappop(self._due)
            known = self._promises.get(uid)
            if known is not None and not known.is_over:
                found[uid] = None
        return list(found)


def _end(promise: _Promise, pod: Resident, rules: ReclaimRules) -> int:
    """Return when a promise is over; a pod whose stage changes again and again does not prolong it."""
    longest = promise.first + UNREPORTED_SECONDS
    match promise.stage:
        case Stage.STALLED:
            # where the time is not known, as in a world file, the promise is over
            return min(longest, promise.since + STALLED_SECONDS) if promise.since else 0
        case Stage.WAITS if pod.tier is Tier.GUARANTEED:
            seconds = rules.notice_seconds + rules.longest_grace_seconds + RECLAIM_SECONDS
            return min(longest, promise.since) + seconds
        case Stage.WAITS:
            return min(longest, promise.since + BORROWING_SECONDS)
        case _:
            return longest
