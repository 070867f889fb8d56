"""Decisions on the pods of a template; gangs judged whole.

The webhook's decisions on the pods of one template, one after another, without a cluster. Pure.

The steps are those of a live pod: admit, patch, verify the patched pod, charge or join the queue. Equal pods get equal
decisions until a resource runs out, so not each of ten thousand pods is evaluated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, assert_never

from webhook.core.admission.admission import admit
from webhook.core.admission.pod_rules import too_many
from webhook.core.admission.verification import verify
from webhook.core.line.entries import Never, entry_of
from webhook.core.line.gang_plans import GangPlan
from webhook.core.line.judged_gang import judge_gang
from webhook.core.line.judged_pod import Judged
from webhook.core.line.line import queued_pod
from webhook.core.model.amounts import GangId, NodeName, Uid
from webhook.core.model.constraints import MAX_MEMBERS, DomainPlace
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Queue, Retry
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.policy import Team
from webhook.core.model.reasons import Code, Reason, Statement, waits_for
from webhook.core.quota.charges import InFlightCharge, flight_of
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.admission.pod_patch import apply, node_choice_operations, operations, queue_operations
from webhook.kube.admission.templates import Template, read_template


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision on `count` equal pods. `patched` is the first of them as it would be stored.

    `place` is that of the first in its team's line, 0 for pods that are in none; the others follow it.
    """

    decision: Decision
    count: int
    node: NodeName | None = None
    patched: Mapping[str, Any] | None = None
    place: int = 0


class Simulator:
    """Simulates the creation of pods, and keeps the charges of earlier ones, and their positions, in its world.

    `created` are the pods that are charged or wait.
    """

    def __init__(self, world: World, *, now_text: str) -> None:
        self.world = world
        self.created: list[Uid] = []
        self._now_text = now_text
        self._number = 0

    def simulate(self, template: Template, count: int, *, requester: Requester) -> Iterator[Answer]:
        """Yield the decisions on `count` equal pods, in order; each run of equal ones is charged before the next.

        Members of a gang that wait for the rest of it are in no line yet (`join_line`): they are judged together first.
        """
        run = _TemplateRun(template, requester, self._now_text)
        left = count
        while left:
            decision = self._decide(run)
            if isinstance(decision, Queue) and decision.reason.code is not Code.WAITS_FOR_GANG:
                queued = self.join_line(run.answer(decision, left), decision, template.pod)
                yield queued
                left -= queued.count
                continue
            if isinstance(decision, Deny | Retry | Queue) or decision.charge is None:  # none is charged: all the same
                yield run.answer(decision, left)
                return
            pod = run.stored(decision)
            node = pod.node_name or _chosen(decision)
            self._charge(pod, decision.charge, node, times=1)
            differs = node is not None or pod.claims  # the next pod has other room, or shares a claim
            equal = 0 if differs else self._charge_equal(run, decision, decision.charge, left - 1)
            yield run.answer(decision, 1 + equal, node)
            left -= 1 + equal

    def join_line(self, answer: Answer, queued: Queue, pod: Pod) -> Answer:
        """Put as many of some equal queued pods as it has places for, and return the answer for these.

        The members of a gang are seen by those that come later; of others their number alone is known, as at the
        webhook before the watch shows them.
        """
        world, team = self.world, queued.team
        ahead, depth = world.waiting.count(team), world.policy.queue_depth(world.policy.team(team) or Team(team))
        count, place = min(answer.count, max(0, depth - ahead)), world.waiting.next_place(team)
        for _ in range(count):
            uid = self.next_uid()
            if pod.gang is None:
                world.waiting.expect(uid, team, now=world.now)
            else:
                world.set_waiting(WaitingPod(pod._replace(uid=uid), team, queued.user, created=world.now))
            self.created.append(uid)
        return replace(answer, count=count, place=place)

    def add(self, flight: InFlightCharge) -> None:
        """Add a pod that was admitted elsewhere."""
        self.world.add_pod(flight)
        self.created.append(flight.pod.uid)

    def next_uid(self) -> Uid:
        """Return the UID of one more pod."""
        self._number += 1
        return Uid(f"simulated/{self._number}")

    def _decide(self, run: "_TemplateRun") -> Decision:
        """Return the decision of the mutating step, or of the validating step where that refuses the patched pod."""
        template, world = run.template, self.world
        decision = admit(template.pod, run.requester, world)
        if not isinstance(decision, Admit):
            return decision
        terms = _terms(decision)
        if terms in run.patched:
            return decision
        patched = apply(template.written, operations(template.found, decision, now_text=self._now_text))
        again = read_template(patched, namespace=template.pod.namespace, world=world)
        if isinstance(again, Deny):
            return again
        committed = verify(again.pod._replace(uid=self.next_uid()), run.requester, world)
        if not isinstance(committed, Admit):
            return committed
        run.patched[terms] = _Stored(patched, again.pod)
        return decision

    def _charge_equal(self, run: "_TemplateRun", decision: Admit | NotApplicable, charge: Charge, left: int) -> int:
        """Charge as many more pods as get the same decision, found by binary search; return their number.

        Free room does not change while no pod gets a node, and sums only grow: if the last pod gets the decision of
        the first, so do those between.
        """
        size, pod = left, run.stored(decision)
        while size:
            before = self._charge(pod, charge, None, times=size - 1) if size > 1 else None
            if _is_equal(self._decide(run), decision):
                self._charge(pod, charge, None, times=1)
                return size
            if before is not None:
                self.world.drop_reservation(before)
                self.created.pop()
            size //= 2
        return 0

    def _charge(self, pod: Pod, charge: Charge, node: NodeName | None, *, times: int) -> Uid:
        uid = self.next_uid()
        charged = charge._replace(gpus=charge.gpus * times)
        nodes = () if node is None else (node,)
        self.world.assume(flight_of(pod._replace(uid=uid), charged, nodes=nodes, is_watched=False))
        self.created.append(uid)
        return uid


def _terms(decision: Admit) -> tuple[object, ...]:
    """Return what a decision writes to a pod, without the node names: pods of equal terms differ in nothing else."""
    charge, choice = decision.charge, decision.node_choice
    return charge.tier, decision.reason.code, choice.mode, choice.pool, charge.model, charge.gpus, bool(choice.nodes)


class _Stored(NamedTuple):
    """A patched pod: the manifest, and the pod of decisions."""

    written: Mapping[str, Any]
    pod: Pod


class _TemplateRun:
    """One template in simulation; `patched` has the first pod admitted with each set of terms."""

    def __init__(self, template: Template, requester: Requester, now_text: str) -> None:
        self.template = template
        self.requester = requester
        self.patched: dict[tuple[object, ...], _Stored] = {}
        self._now_text = now_text

    def answer(self, decision: Decision, count: int, node: NodeName | None = None) -> Answer:
        """Return the answer for `count` of its pods."""
        return Answer(decision, count, node, self._patched(decision))

    def stored(self, decision: Admit | NotApplicable) -> Pod:
        """Return one of its pods as it would be stored, without the node names."""
        return self.patched[_terms(decision)].pod if isinstance(decision, Admit) else self.template.pod

    def _patched(self, decision: Decision) -> Mapping[str, Any] | None:
        if isinstance(decision, Admit):
            return self.patched[_terms(decision)].written
        if isinstance(decision, Queue):
            patch = queue_operations(self.template.found, decision, now_text=self._now_text)
            return apply(self.template.written, patch)
        if isinstance(decision, NotApplicable) and decision.node_choice is not None:
            return apply(self.template.written, node_choice_operations(self.template.found, decision.node_choice))
        return None


def _is_equal(one: Decision, other: Decision) -> bool:
    match one, other:
        case Admit(), Admit():
            return _terms(one) == _terms(other) and not one.node_choice.nodes
        case NotApplicable(), NotApplicable():
            return one.reason == other.reason
        case _:
            return False


def _chosen(decision: Admit | NotApplicable) -> NodeName | None:
    match decision:
        case Admit(node_choice=node_choice):
            return node_choice.nodes[0] if node_choice.nodes else None
        case NotApplicable():
            return None
        case _ as never:
            assert_never(never)


# Gangs of workloads that do not exist, judged as the leader judges them once all of their pods wait. Pure.


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
    """Return the pods of a gang as they would wait in the queue, no more than may start together."""
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
