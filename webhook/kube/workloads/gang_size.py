"""The gang of an object that makes pods: how many start together, and which are made only once those run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from webhook.core.line.gang_plans import GangPlan
from webhook.core.model.constraints import MAX_MEMBERS
from webhook.core.model.demand import Weights
from webhook.core.model.pod import Pod
from webhook.kube.kinds.kind_row import NO_GANG, KindTable, Stage, Stages
from webhook.kube.kinds.model import TOO_LARGE, Budget, BudgetSpentError, Json, PodSet, Unknown, mapping, text
from webhook.kube.pod.pods import InvalidPod
from webhook.kube.workloads.expand import expand, to_part
from webhook.kube.workloads.gangs import gang_object


class _Members(NamedTuple):
    """Pods of one role that need GPUs."""

    role: str
    pod: Pod
    number: int


class UnknownSizeError(Exception):
    """An object does not say how many pods its gang has."""


def gang_plan(
    document: Json, *, kinds: KindTable, namespace: str, weights: Weights, budget: Budget | None = None
) -> GangPlan:
    """Return what an object says of the gang of its pods; `weights` as in read_demand, `budget` as in expand.

    Raises UnknownSizeError, with the reason, if it does not say it.
    """
    row = kinds.get((text(document.get("apiVersion")).rpartition("/")[0], text(document.get("kind"))))
    rules = NO_GANG if row is None else row.gang
    try:
        least = rules.least_of(document)
    except ValueError as error:
        raise UnknownSizeError(str(error)) from error
    source = f"{text(document.get('kind'))} {text(mapping(document.get('metadata')).get('name'))}"
    if rules.counts_all and least is not None:
        return GangPlan(least, source=source, counts_all=True)
    budget = budget or Budget()
    if row is not None and row.manager is not None and row.manager.other(document):
        row = replace(row, manager=None)  # its pods are here: someone makes them
        kinds = {**kinds, (row.kind.group, row.kind.kind): row}
    workload = expand(rules.at_minimum(document), kinds=kinds, namespace=namespace, budget=budget)
    if workload is None or isinstance(workload, Unknown):
        raise UnknownSizeError("it makes no pods" if workload is None else workload.reason)
    try:
        members = tuple(_members(workload.pod_sets, namespace, weights, budget))
    except BudgetSpentError as error:
        raise UnknownSizeError(TOO_LARGE) from error
    others = sum(pods.count or 0 for pods in workload.pod_sets) - sum(each.number for each in members)
    plan = _staged(members, rules.stages_of(document))
    if least is not None:
        plan = plan._replace(size=max(1, min(plan.size, least - others)))
    return plan._replace(source=source)


def plan_of_workload(
    document: Json, pod: Pod, *, kinds: KindTable, namespace: str, weights: Weights, budget: Budget | None = None
) -> GangPlan:
    """Return what a workload says of the gang of one of its pods; nothing where another object describes that."""
    found = None if pod.gang is None else gang_object(pod, pod.gang.id)
    if found is None or found.row.gang.counts_all:
        return GangPlan()
    try:
        return gang_plan(document, kinds=kinds, namespace=namespace, weights=weights, budget=budget)
    except UnknownSizeError:
        return GangPlan()


def _members(pod_sets: Sequence[PodSet], namespace: str, weights: Weights, budget: Budget) -> Iterator[_Members]:
    for pods in pod_sets:
        part = to_part(pods, namespace=namespace, weights=weights, budget=budget) if pods.template else None
        if part is None or isinstance(part, InvalidPod) or part.count is None:
            raise UnknownSizeError(pods.problem or "one of its pod templates cannot be read")
        if part.count and (part.pod.demand.gpus or part.pod.claims):
            yield _Members(pods.role, part.pod, part.count)


def _staged(members: Sequence[_Members], stages: Stages) -> GangPlan:
    """Return the plan of roles that run at the same time: the first of them start together, the others follow."""
    first = min((stages.of(each.role) for each in members), default=Stage())
    now = [each for each in members if stages.of(each.role) == first]
    then = [each for each in members if stages.of(each.role).era == first.era and stages.of(each.role) != first]
    late: list[Pod] = []
    for each in now:
        late += _pods(each, stages.followers(each.role, each.number))
    size = sum(each.number - stages.followers(each.role, each.number) for each in now)
    if stages.is_one_by_one and size > 1:
        late, size = _pods(now[0], size - 1), 1
    for each in sorted(then, key=lambda role: stages.of(role.role)):
        late += _pods(each, each.number)
    return GangPlan(max(1, size), tuple(late[:MAX_MEMBERS]))


def _pods(members: _Members, count: int) -> list[Pod]:
    return [members.pod] * min(count, MAX_MEMBERS)
