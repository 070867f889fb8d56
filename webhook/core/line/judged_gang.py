"""May this gang start; reasons of those behind.

Judges whether the members of a gang may start together, by the decision that each of them would get alone.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.domain_rules import request_of
from webhook.core.admission.pod_rules import limits_for, never_reason, over_together
from webhook.core.admission.queueing import behind_others, fits_without_borrowers
from webhook.core.line.entries import (
    IN_TURN,
    Attempt,
    Fits,
    GangPauses,
    KeepableNode,
    Never,
    NoRoom,
    OverLimit,
    QueueEntry,
    ReclaimPace,
    Verdict,
    Way,
    kept_nodes,
)
from webhook.core.line.gang_domains import GangDomains
from webhook.core.line.judged_pod import NO_REQUESTER, BorrowedRoom, Judged, has_place, judge_pod, nodes_for
from webhook.core.line.line import DEPARTMENT, TEAM, USER, counted_by
from webhook.core.line.pod_queue import PodQueue
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import DomainPlace, Tier, levels_to_try
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.quota.limits import AppliedLimit
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


def judge_gang(
    entry: QueueEntry, world: World, attempt: Attempt = IN_TURN, *, borrowed: BorrowedRoom | None = None
) -> list[Judged]:
    """Return the judgment on each member of a gang, all with one verdict: they start now, or none of them does.

    Each is judged with those before it assumed in the world; afterwards the world is as before. `borrowed` is the room
    that reclaim could make, if it was counted already.
    """
    members, name = _members(entry, world)
    if (over := _over_together(entry, members, name, world)) is not None:
        return [over._replace(waiting=member, pod=member.pod) for member in members]
    domains = GangDomains(members, world, kept=attempt.kept)
    found: list[Judged] = []
    for place, room in domains.attempts(borrowed or BorrowedRoom(world), way=attempt.way):
        found = _together(members, world, room, attempt, place)
        if isinstance(found[-1].verdict, Fits):
            return found
    if world.tentative.clear(world.fleet):
        return judge_gang(entry, world, attempt, borrowed=borrowed)
    if (never := domains.never()) is not None:
        return [Judged(member, member.pod, Deny((never,)), Never(), _for_gang(never.statement)) for member in members]
    return _all_wait(entry, members, found, world, domains)


def gang_has_place(entry: QueueEntry, world: World, coming: BorrowedRoom) -> bool:
    """Whether the members of a gang would find room together, with the room that comes; each of them does alone."""
    members, _ = _members(entry, world)
    return GangDomains(members, world, kept=frozenset()).has_place(coming)


def judge_first(entry: QueueEntry, world: World) -> Judged:
    """Return the judgment on the first member of a gang: what all of them wait for as far as one judgment can say."""
    members, name = _members(entry, world)
    if (over := _over_together(entry, members, name, world)) is not None:
        return over
    judged = judge_pod(members[0], world, None, is_member=True)
    if judged.reason is None:
        return judged
    facts = {"gang": name, "pods": len(members), "pod": members[0].pod.name, "why": judged.reason.statement}
    words = "gang {gang} starts whole, with {pods} pods; for {pod}: {why}"
    return judged._replace(reason=_for_gang(Statement(words, facts)))


def _members(entry: QueueEntry, world: World) -> tuple[list[WaitingPod], str]:
    """Return the members of a gang, and its name."""
    members = [pod for each in entry.pods if (pod := world.waiting.member(each.uid)) is not None]
    return members, _name(members)


def _name(members: list[WaitingPod]) -> str:
    gang = members[0].pod.gang
    return "" if gang is None else gang.name


def _together(
    members: list[WaitingPod],
    world: World,
    borrowed: BorrowedRoom | None,
    attempt: Attempt,
    place: DomainPlace | None,
) -> list[Judged]:
    """Return the judgments on members, each with those before it assumed, up to the first that may not start."""
    found: list[Judged] = []
    with world.what_if() as assume:
        for member in members:
            judged = judge_pod(member, world, borrowed, attempt, is_member=True, place=place)
            found.append(judged)
            if not (isinstance(judged.verdict, Fits) and isinstance(judged.decision, Admit)):
                break
            assume(judged.flight)
    return found


def _over_together(entry: QueueEntry, members: list[WaitingPod], name: str, world: World) -> Judged | None:
    """Return the judgment on the members of a gang that a limit has no room for together; None if all have.

    The evictor makes room for a gang all of whose pods exist: what others need later, it cannot know.
    """
    first = members[0]
    assessed = assess(first.pod, NO_REQUESTER, world).of_user(first.user)
    if assessed.early_decision is not None:
        return None
    if (never := never_reason(assessed, name, entry.gpus)) is not None:
        return Judged(first, first.pod, Deny((never,)), Never(), _for_gang(never.statement))
    blocking = limits_for(assessed, entry.gpus)
    if not blocking:
        return None
    may_be_borrowed = not any(
        member.uid in world.waiting.expected or member.pod.requested_tier is Tier.PREEMPTIBLE for member in members
    )
    is_borrowed = may_be_borrowed and fits_without_borrowers(assessed, blocking, entry.gpus, world)
    cause = over_together(assessed, blocking, name, entry.gpus, is_borrowed=is_borrowed)
    decision, verdict = Deny((Reason(blocking[0].code, *cause),)), OverLimit(_limit_key(blocking[0], assessed))
    why = Reason(Code.WAITS_FOR_BORROWERS if is_borrowed else Code.WAITS_FOR_LIMIT, *cause)
    return Judged(first, first.pod, decision, verdict, why, gang_whole=len(members) if is_borrowed else 0)


def _limit_key(limit: AppliedLimit, assessed: Assessment) -> Hashable:
    team = assessed.team.name
    if limit.level is not None:
        return (DEPARTMENT, limit.level.department.name)
    return (TEAM, team) if limit.user is None else (USER, team, limit.user)


def _all_wait(
    entry: QueueEntry,
    members: list[WaitingPod],
    found: list[Judged],
    world: World,
    domains: GangDomains,
) -> list[Judged]:
    """Return that all members of a gang wait for what the last of those that were judged waits for."""
    last = found[-1]
    verdict, before = last.verdict, last.attempt.before
    if isinstance(verdict, NoRoom) and verdict.keep:
        assessed = assess(last.waiting.pod, NO_REQUESTER, world)
        rooms = [KeepableNode(node, free, size) for node, free, size in nodes_for(assessed, world)]
        sizes = [pod.gpus for pod in entry.pods]
        keep = kept_nodes(sizes, domains.to_keep(rooms, before=before), before=before)
        verdict = NoRoom(keep, has_devices=verdict.has_devices)
    facts: dict[str, object] = {"gang": _name(members), "pods": len(members)}
    words = "gang {gang} starts whole, with {pods} pods"
    where, short = domains.waits_for()
    if where:
        words += " in one {domain}"
        facts["domain"] = where
    if short is not None:
        words += "; {short}"
        facts["short"] = short
    elif last.reason is not None:
        words += "; for {pod} beside the others: {why}" if len(found) > 1 else "; for {pod}: {why}"
        facts |= {"pod": last.waiting.pod.name, "why": last.reason.statement}
    why = _for_gang(Statement(words, facts))
    return [Judged(member, member.pod, last.decision, verdict, why, last.attempt) for member in members]


def _for_gang(cause: Statement) -> Reason:
    return Reason(Code.WAITS_FOR_GANG, *cause)


# Judges the entries of the queue during one pass: a pod alone, the members of a gang together.


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
        """Return whether the entry may start; implements webhook.core.line.line_pass.Judge."""
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


# Why the entries behind the head of the queue wait: a pass judges only those that might start.
#
# Of the others a few are judged in each second, in rounds, so that what is written on their pods is true, too: a limit
# or a policy that changes while they wait changes their reasons as well.


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
