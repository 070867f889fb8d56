"""The gang of an object that makes pods: how many start together, and which are made only once those run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.core.model.demand import Weights
from webhook.core.model.gang import MAX_MEMBERS
from webhook.core.model.pod import Pod
from webhook.core.release.gang_plans import GangPlan
from webhook.kube.pod.pods import InvalidPod
from webhook.kube.workloads.budget import TOO_LARGE, Budget, BudgetSpentError
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.gang_minimum import at_minimum, least_together
from webhook.kube.workloads.gang_object import POD_GROUP, gang_object
from webhook.kube.workloads.gang_stages import Stage, Stages, stages_of
from webhook.kube.workloads.kind_row import KindTable
from webhook.kube.workloads.model import Json, PodSet, Unknown, mapping, text
from webhook.kube.workloads.parts import to_part
from webhook.kube.workloads.paths import dig


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
    source = f"{text(document.get('kind'))} {text(mapping(document.get('metadata')).get('name'))}"
    if document.get("kind") == POD_GROUP:
        return GangPlan(_least_of_group(document), source=source, counts_all=True)
    budget = budget or Budget()
    workload = expand(at_minimum(document), kinds=kinds, namespace=namespace, budget=budget)
    if workload is None or isinstance(workload, Unknown):
        raise UnknownSizeError("it makes no pods" if workload is None else workload.reason)
    try:
        members = tuple(_members(workload.pod_sets, namespace, weights, budget))
    except BudgetSpentError as error:
        raise UnknownSizeError(TOO_LARGE) from error
    others = sum(pods.count or 0 for pods in workload.pod_sets) - sum(each.number for each in members)
    plan = _staged(members, stages_of(document))
    least = least_together(document)
    if least is not None:
        plan = plan._replace(size=max(1, min(plan.size, least - others)))
    return plan._replace(source=source)


def plan_of_workload(
    document: Json, pod: Pod, *, kinds: KindTable, namespace: str, weights: Weights, budget: Budget | None = None
) -> GangPlan:
    """Return what a workload says of the gang of one of its pods; nothing where another object describes that."""
    found = None if pod.gang is None else gang_object(pod, pod.gang.id)
    if found is None or found.kind == POD_GROUP:
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
    size = sum(each.number for each in now)
    late: list[Pod] = []
    if stages.is_one_by_one and size > 1:
        late, size = _pods(now[0], size - 1), 1
    for each in sorted(then, key=lambda role: stages.of(role.role)):
        late += _pods(each, each.number)
    return GangPlan(max(1, size), tuple(late[:MAX_MEMBERS]))


def _pods(members: _Members, count: int) -> list[Pod]:
    return [members.pod] * min(count, MAX_MEMBERS)


def _least_of_group(group: Json) -> int:
    """Return how many pods a PodGroup wants together: of Volcano, scheduler-plugins or Kubernetes itself."""
    spec = mapping(group.get("spec"))
    policy = spec.get("schedulingPolicy")
    if policy is not None and dig(policy, "gang") is None:
        return 1  # its pods are scheduled one by one
    least = dig(policy, "gang.minCount") if policy is not None else spec.get("minMember")
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise UnknownSizeError(f"it wants {least!r} pods together")
    return least
