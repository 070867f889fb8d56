"""Judges the entries of the queue during one pass: a pod alone, the members of a gang together."""

from collections.abc import Hashable, Mapping
from typing import Final

from webhook.core.admission.domain_rules import request_of
from webhook.core.gangs.gang_pauses import GangPauses
from webhook.core.model.domain_request import levels_to_try
from webhook.core.model.names import NodeName, Uid
from webhook.core.queue.queued_pod import QueueEntry
from webhook.core.queue.verdict import Attempt, Never, Verdict, Way
from webhook.core.waiting.borrowed_room import BorrowedRoom
from webhook.core.waiting.judged_gang import gang_has_place, judge_gang
from webhook.core.waiting.judged_pod import Judged, has_place, judge_pod
from webhook.core.waiting.reclaim_pace import ReclaimPace
from webhook.core.waiting.waiting_entries import counted_by
from webhook.core.world.world import World

NODES_PER_MEMBER: Final = 64
"""Nodes that a search over the domains of one level passes in the time of a judgment on one pod."""


class EntryJudge:
    """Judges entries on the present world during one pass. `judged` has the last judgment on each pod.

    `before` are the nodes that the pass before kept for a pod (`kept_nodes`). `pauses` says which gangs are not judged,
    `pace` how many pods wait for room that is taken back.
    """

    def __init__(
        self,
        world: World,
        *,
        before: Mapping[Uid, frozenset[NodeName]] | None = None,
        pauses: GangPauses | None = None,
        pace: ReclaimPace | None = None,
        now: int = 0,
    ) -> None:
        self.judged: dict[Uid, Judged] = {}
        self._world = world
        self._before = before or {}
        pace = pace or ReclaimPace(world)
        self._borrowed = BorrowedRoom(world, is_paced=lambda team: pace.are_enough(team, now=now))
        self._pauses = pauses or GangPauses()
        self._now = now
        self._coming: dict[Hashable, BorrowedRoom] = {}
        self._levels = world.policy.topology.levels

    def __call__(self, entry: QueueEntry, *, way: Way, kept: frozenset[NodeName]) -> Verdict:
        """Return whether the entry may start; implements webhook.core.queue.queue_pass.Judge."""
        uid = entry.pods[0].uid
        before = self._before.get(uid, frozenset())
        if entry.pods[0].gang is not None:
            return self._judge_gang(entry, Attempt(way, kept, before))
        waiting = self._world.waiting.get(uid)
        if waiting is None or self._world.is_assumed(uid):  # another leader has charged it
            return Never()
        judged = self.judged[uid] = judge_pod(waiting, self._world, self._borrowed, Attempt(way, kept, before))
        return judged.verdict

    def has_place(self, entry: QueueEntry, limit: Hashable, *, is_owed: bool) -> bool:
        """Return whether the entry would find room if the limit had some; implements Judge."""
        coming = self._borrowed if is_owed else self._under(limit)
        of_kinds = {pod.kind: pod.uid for pod in reversed(entry.pods)}
        members = [self._world.waiting.member(uid) for uid in of_kinds.values()]
        if not all(member is not None and has_place(member, self._world, coming) for member in members):
            return False
        return entry.pods[0].gang is None or gang_has_place(entry, self._world, coming)

    def _under(self, limit: Hashable) -> BorrowedRoom:
        """Return the room that comes once the pods end that a limit counts; it is counted once in a pass."""
        found = self._coming.get(limit)
        if found is None:
            found = self._coming[limit] = BorrowedRoom(self._world, counts=counted_by(limit, self._world))
        return found

    def search_cost(self, entry: QueueEntry) -> int:
        """Return what the search for domains of a gang costs, in judgments on single pods: it passes all nodes."""
        waiting = self._world.waiting.get(entry.pods[0].uid)
        gang = None if waiting is None else waiting.pod.gang
        levels = () if gang is None else levels_to_try(request_of(gang, self._world), self._levels)
        return len(levels) * -(-len(self._world.fleet) // NODES_PER_MEMBER)

    def _judge_gang(self, entry: QueueEntry, attempt: Attempt) -> Verdict:
        """Return whether all members may start together."""
        waiting = self._world.waiting
        if any(waiting.member(pod.uid) is None or self._world.is_assumed(pod.uid) for pod in entry.pods):
            return Never()
        extra = self.search_cost(entry)
        known = self._pauses.known(entry, now=self._now, extra=extra)
        if known is not None:
            return known
        found = judge_gang(entry, self._world, attempt, borrowed=self._borrowed)
        self.judged.update((judged.waiting.uid, judged) for judged in found)
        verdict = found[0].verdict
        self._pauses.note(entry, verdict, now=self._now, extra=extra)
        return verdict
