"""Judges whether the members of a gang may start together, by the decision that each of them would get alone."""

from collections.abc import Hashable

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.gang_rules import limits_for, never_reason, over_together
from webhook.core.admission.queueing import fits_without_borrowers
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.domain_request import DomainPlace
from webhook.core.model.reason import Code, Reason
from webhook.core.model.statement import Statement
from webhook.core.model.tier import Tier
from webhook.core.queue.kept_nodes import KeepableNode, kept_nodes
from webhook.core.queue.queued_pod import QueueEntry
from webhook.core.queue.verdict import IN_TURN, Attempt, Fits, Never, NoRoom, OverLimit
from webhook.core.quota.limits import AppliedLimit
from webhook.core.waiting.borrowed_room import BorrowedRoom, nodes_for
from webhook.core.waiting.gang_domains import GangDomains
from webhook.core.waiting.judged_pod import NO_REQUESTER, Judged, judge_pod
from webhook.core.waiting.waiting_entries import DEPARTMENT, TEAM, USER
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
        words += "; for {pod}: {why}"
        facts |= {"pod": last.waiting.pod.name, "why": last.reason.statement}
    why = _for_gang(Statement(words, facts))
    return [Judged(member, member.pod, last.decision, verdict, why, last.attempt) for member in members]


def _for_gang(cause: Statement) -> Reason:
    return Reason(Code.WAITS_FOR_GANG, *cause)
