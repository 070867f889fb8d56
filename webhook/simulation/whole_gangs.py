"""Gangs of workloads that do not exist, judged as the leader judges them once all of their pods wait. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from webhook.core.admission.gang_rules import too_many
from webhook.core.gangs.gang_plans import GangPlan
from webhook.core.model.decision import Admit, Deny, Queue
from webhook.core.model.domain_request import DomainPlace
from webhook.core.model.gang import MAX_MEMBERS
from webhook.core.model.names import GangId
from webhook.core.model.reason import Code, Reason, waits_for
from webhook.core.model.statement import Statement
from webhook.core.queue.queued_pod import entry_of
from webhook.core.queue.verdict import Never
from webhook.core.waiting.judged_gang import judge_gang
from webhook.core.waiting.judged_pod import Judged
from webhook.core.waiting.waiting_entries import queued_pod
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.simulation.simulate import Answer, Simulator, Template


class GangRole(NamedTuple):
    """Equal pods of a gang, and the answer by which each of them waits for the others."""

    template: Template
    number: int
    answer: Answer


class WholeGang(NamedTuple):
    """What becomes of a gang: for each role its answers, and how many more of its pods come once the gang has started.

    `place` is the domain of those that start together, if they start.
    """

    answers: list[list[Answer]]
    later: list[int]
    place: DomainPlace | None = None


def waits_for_gang(answer: Answer) -> Queue | None:
    """Return the decision by which a pod waits for the others of its gang; None for any other."""
    decision = answer.decision
    return decision if isinstance(decision, Queue) and decision.reason.code is Code.WAITS_FOR_GANG else None


def judge_whole(roles: Sequence[GangRole], plan: GangPlan, simulator: Simulator) -> WholeGang | None:
    """Return what becomes of a gang once all pods of these roles have come; those that start are charged.

    None where it is not known how many there will be, or its pods declare more.
    """
    world, gang, queued = simulator.world, roles[0].template.pod.gang, waits_for_gang(roles[0].answer)
    if gang is None or queued is None:
        return None
    total = sum(role.number for role in roles)
    size = plan.size or max(each.gang.size for role in roles if (each := role.template.pod).gang is not None) or total
    together = min(size + len(plan.late), total)
    if size > total:
        return None
    if together > MAX_MEMBERS:
        return _all_wait(roles, waits_for(Code.WAITS_FOR_GANG, too_many(gang.name, together)))
    has_line = world.waiting.has_line(queued.team)
    members = list(islice(_members(roles, queued, simulator), together))
    judged = _judged([member for _, member in members], gang.id, world)
    if (why := judged[0].reason) is not None:
        if isinstance(judged[0].verdict, Never) and gang.size and isinstance(judged[0].decision, Deny):
            # the webhook knows the size as well, and refuses the pod with which it is clear
            return WholeGang([[Answer(judged[0].decision, role.number)] for role in roles], [0] * len(roles))
        return _all_wait(roles, waits_for(Code.WAITS_FOR_GANG, why.statement))
    if has_line:
        cause = Statement("pods of team {team} wait ahead of gang {gang}", {"team": queued.team, "gang": gang.name})
        return _all_wait(roles, waits_for(Code.WAITS_IN_LINE, cause))
    return _started(roles, [number for number, _ in members], judged, simulator)


def waiting_members(roles: Sequence[GangRole], simulator: Simulator) -> list[WaitingPod]:
    """Return the pods of a gang as they would wait in line, no more than may start together."""
    queued = waits_for_gang(roles[0].answer)
    return [] if queued is None else [pod for _, pod in islice(_members(roles, queued, simulator), MAX_MEMBERS)]


def _members(roles: Sequence[GangRole], queued: Queue, simulator: Simulator) -> Iterator[tuple[int, WaitingPod]]:
    """Yield the pods of a gang as they would wait, with the numbers of their roles."""
    for number, role in enumerate(roles):
        pod = role.template.pod
        name = pod.name or (pod.owner.name if pod.owner is not None else "")
        for index in range(role.number):
            named = pod._replace(name=f"{name}-{index}", uid=simulator.next_uid())
            yield number, WaitingPod(named, queued.team, queued.user, created=number)


def _judged(members: Sequence[WaitingPod], gang: GangId, world: World) -> list[Judged]:
    for member in members:
        world.set_waiting(member)
    entry = entry_of(queued_pod(member, world)._replace(gang=gang) for member in members)
    judged = judge_gang(entry, world)
    for member in members:
        world.waiting.discard(member.uid)
    return judged


def _started(
    roles: Sequence[GangRole], numbers: Sequence[int], judged: Sequence[Judged], simulator: Simulator
) -> WholeGang:
    answers: list[list[Answer]] = [[] for _ in roles]
    role_of = dict(zip((each.waiting.uid for each in judged), numbers, strict=True))
    for each in judged:
        if isinstance(each.decision, Admit):
            flight = each.flight
            simulator.add(flight)
            number = role_of[each.waiting.uid]
            answers[number].append(Answer(each.decision, 1, flight.node, roles[number].answer.patched))
    later = [role.number - len(found) for role, found in zip(roles, answers, strict=True)]
    return WholeGang(answers, later, judged[0].place)


def _all_wait(roles: Sequence[GangRole], reason: Reason) -> WholeGang:
    answers = [
        [replace(role.answer, decision=queued._replace(reason=reason))]
        for role in roles
        if (queued := waits_for_gang(role.answer)) is not None
    ]
    return WholeGang(answers, [0] * len(roles))
