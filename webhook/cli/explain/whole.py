"""Manifests whose pods are a gang in line: explained as the leader judges them once all of the pods have come."""

from collections.abc import Sequence
from dataclasses import replace

from webhook.cli.explain.subjects import Subject
from webhook.core.admission.assessment import assess
from webhook.core.explain.domains import DomainSteps, domain_steps
from webhook.core.explain.explanation import Explanation
from webhook.core.gangs.gang_plans import GangPlan
from webhook.core.model.decision import Deny
from webhook.core.model.names import GangId
from webhook.core.model.pod import CONTROLLER
from webhook.core.world.world import World
from webhook.simulation.simulate import Answer, Simulator
from webhook.simulation.whole_gangs import GangRole, judge_whole, waiting_members, waits_for_gang


def as_whole_gangs(subjects: Sequence[Subject], alone: Sequence[Explanation], world: World) -> list[Explanation]:
    """Return the explanations of subjects, those of a gang with the decision on all of its pods together.

    `alone` are those of each pod by itself. The world is afterwards as before.
    """
    found = list(alone)
    gangs: dict[GangId, dict[int, GangRole]] = {}
    for number, (subject, explanation) in enumerate(zip(subjects, alone, strict=True)):
        if subject.plan is None or not subject.count or isinstance(subject.template, Deny):
            continue
        gang, answer = subject.template.pod.gang, Answer(explanation.decision, subject.count)
        if gang is not None and waits_for_gang(answer) is not None:
            gangs.setdefault(gang.id, {})[number] = GangRole(subject.template, subject.count, answer)
    for roles in gangs.values():
        plan = next((plan for number in roles if (plan := subjects[number].plan) is not None), GangPlan())
        simulator = Simulator(world, now_text="")
        domains = _domains([*roles.values()], simulator)
        whole = judge_whole([*roles.values()], plan, simulator)
        for uid in simulator.created:
            world.remove_pod(uid)
        for index, number in enumerate(roles):
            answers = () if whole is None else whole.answers[index]
            decision = answers[0].decision if answers else alone[number].decision
            found[number] = replace(alone[number], decision=decision, domains=domains)
    return found


def _domains(roles: Sequence[GangRole], simulator: Simulator) -> DomainSteps | None:
    """Return the domains for all pods of a gang, as if they waited."""
    world, pod = simulator.world, roles[0].template.pod
    members = waiting_members(roles, simulator)[1:]
    for member in members:
        world.set_waiting(member)
    steps = domain_steps(assess(pod, CONTROLLER, world), world)
    for member in members:
        world.waiting.discard(member.uid)
    return steps
