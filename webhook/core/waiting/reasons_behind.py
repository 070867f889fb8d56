"""Why the entries behind the head of the line wait: a pass judges only those that might start.

Of the others a few are judged in each second, in rounds, so that what is written on their pods is true, too: a limit or
a policy that changes while they wait changes their reasons as well.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from webhook.core.admission.queueing import behind_others
from webhook.core.model.names import Uid
from webhook.core.model.reason import Code, Reason
from webhook.core.queue.pod_queue import PodQueue
from webhook.core.queue.queued_pod import QueueEntry
from webhook.core.queue.verdict import Fits
from webhook.core.waiting.judged_gang import judge_first
from webhook.core.waiting.judged_pod import Judged, judge_pod
from webhook.core.world.world import World

ENTRIES: Final = 512
JUDGED: Final = 8
"""Entries that are looked at in a second, and kinds of them that are judged: equal pods are judged once."""

TRUE_SECONDS: Final = 60
"""For how long the judgment of a pass counts: with others ahead of it, an entry may wait for more than alone."""


class ReasonsBehind:
    """Judges entries of one queue in rounds. Times are in seconds of Unix time."""

    def __init__(self, world: World, queue: PodQueue) -> None:
        self._world = world
        self._queue = queue
        self._round: deque[Hashable] = deque()
        self._judged_at: dict[Uid, int] = {}
        self._second = 0

    def look(self, blocked: Mapping[Uid, Judged], *, now: int) -> dict[Uid, Judged]:
        """Return the judgments on the next pods; none where this second had its judgments. `blocked` are of a pass."""
        self._judged_at |= dict.fromkeys(blocked, now)
        if now == self._second or not self._world.policy.is_enforced:
            return {}
        self._second = now
        if not self._round:
            self._round.extend(entry.key for entry in self._queue.entries())
            self._judged_at = {uid: at for uid, at in self._judged_at.items() if at > now - TRUE_SECONDS}
        found: dict[Uid, Judged] = {}
        alike: dict[Hashable, Judged] = {}
        for _ in range(min(ENTRIES, len(self._round))):
            entry = self._queue.get(self._round[0])
            if entry is not None and not self._is_known(entry, now=now):
                kind = _kind_of(entry)
                if kind not in alike and len(alike) == JUDGED:
                    break
                judged = alike[kind] = alike.get(kind) or self._judged(entry)
                found |= self._reasons(entry, judged)
            self._round.popleft()
        return found

    def _is_known(self, entry: QueueEntry, *, now: int) -> bool:
        return self._judged_at.get(entry.pods[0].uid, now - TRUE_SECONDS) > now - TRUE_SECONDS

    def _judged(self, entry: QueueEntry) -> Judged:
        waiting = self._world.waiting
        if entry.pods[0].gang is not None:
            return judge_first(entry, self._world)
        pod = waiting.get(entry.pods[0].uid)
        if pod is None:
            raise AssertionError(f"an entry without a waiting pod: {entry.key}")
        return judge_pod(pod, self._world, None)

    def _reasons(self, entry: QueueEntry, judged: Judged) -> dict[Uid, Judged]:
        """Return the judgment for each pod of an entry. One that would start has others of its team ahead of it."""
        why = judged.reason
        if isinstance(judged.verdict, Fits):
            if self._world.waiting.size(entry.team) <= len(entry.pods):
                return {}  # the next pass starts it
            why = Reason(Code.WAITS_IN_LINE, *behind_others(entry.team))
        members = (self._world.waiting.get(pod.uid) for pod in entry.pods)
        return {pod.uid: judged._replace(waiting=pod, pod=pod.pod, reason=why) for pod in members if pod is not None}


def _kind_of(entry: QueueEntry) -> Hashable:
    """Return what entries have in common that wait for the same; a gang has its own name in its reason."""
    first = entry.pods[0]
    if first.gang is not None:
        return entry.key
    return first.like
