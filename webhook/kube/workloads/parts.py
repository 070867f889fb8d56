"""Evaluation of a workload's pod sets together by the core."""

from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from webhook.core.admission.resolve_demand import as_created
from webhook.core.admission.workload_fit import Part, borrowed, deadline_in_line, fit_problems
from webhook.core.model.demand import Weights
from webhook.core.model.names import Namespace
from webhook.core.model.pod import Requester
from webhook.core.model.policy import Policy
from webhook.core.model.reason import Code, Reason
from webhook.core.model.workload_rules import JobEvictions
from webhook.core.world.world import World
from webhook.kube.kinds.budget import TOO_LARGE, Budget, BudgetSpentError
from webhook.kube.kinds.model import EvictionEffect, PodSet, Workload
from webhook.kube.objects import keys, objects
from webhook.kube.pod.domain_requests import domain_request
from webhook.kube.pod.gangs import is_requested
from webhook.kube.pod.pods import InvalidPod, to_pod

NOT_JUDGED: Final = Reason(Code.TOO_LARGE, "{problem}", {"problem": TOO_LARGE})
"""The only reason for a workload that takes more than its budget."""

_PART_STEPS: Final = 500
_CONTAINER_STEPS: Final = 12
"""The cost of judging a pod, and of each of its containers."""

_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


def to_part(pod_set: PodSet, *, namespace: str, weights: Weights, budget: Budget) -> Part | InvalidPod:
    """Translate a pod set that has a template; `weights` as in read_demand. Raises BudgetSpentError."""
    try:
        written = msgspec.json.encode(pod_set.template)
        budget.write(len(written))
        pod = _pod_decoder.decode(written)
    except objects.UNREADABLE as error:
        return InvalidPod((objects.describe(error),))
    budget.step(_cost(pod, len(written)))
    made = to_pod(pod, namespace=Namespace(namespace), weights=weights)
    if isinstance(made, InvalidPod):
        return made
    if pod_set.shared:
        claims = (
            ref._replace(claim=f"{ref.group}/{ref.entry}") if (ref.entry, ref.template) in pod_set.shared else ref
            for ref in made.claims
        )
        made = made._replace(claims=tuple(claims))
    domain = domain_request(made.annotations)
    return Part(pod_set.role, made, pod_set.count, domain, is_gang=is_requested(made.annotations, domain))


def _cost(pod: objects.Pod, length: int) -> int:
    """Return the steps of translating and judging a pod of so many bytes."""
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    resources = sum(len(bytes(container.resources)) for container in containers)
    decision = (pod.metadata.annotations or {}).get(keys.DECISION, "")
    return _PART_STEPS + _CONTAINER_STEPS * len(containers) + length // 16 + resources // 4 + len(decision) // 2


def judge(workload: Workload, requester: Requester, world: World, budget: Budget) -> tuple[Reason, ...]:
    """Return every reason why the known pods of a workload can never all run, or may end before they ran.

    They may fail by evictions, or by a deadline that runs on while they wait in line. NOT_JUDGED alone if it takes more
    than the budget.
    """
    try:
        now = _parts(workload.pod_sets, workload, world, budget)
        later = [_parts((pod_set,), workload, world, budget) for pod_set in workload.later]
    except BudgetSpentError:
        return (NOT_JUDGED,)
    found: list[Reason] = []
    for parts in (now, *later):
        found += _judged(parts, workload, requester, world)
    return tuple(dict.fromkeys(found))


class _Parts(NamedTuple):
    """Pods that run at the same time, and why others of that time are refused."""

    known: list[Part]
    refused: list[Reason]


def _parts(pod_sets: tuple[PodSet, ...], workload: Workload, world: World, budget: Budget) -> _Parts:
    found = _Parts([], [])
    for pod_set in pod_sets:
        if not pod_set.template:
            continue
        part = to_part(pod_set, namespace=workload.namespace, weights=world.policy.resources, budget=budget)
        if isinstance(part, InvalidPod):
            found.refused.extend(part.reasons)
        else:
            found.known.append(replace(part, pod=as_created(part.pod, world.policy)))
    return found


def _judged(parts: _Parts, workload: Workload, requester: Requester, world: World) -> list[Reason]:
    found = [*parts.refused, *fit_problems(parts.known, requester, world)]
    if why := _why_evictions_fail(workload.evictions, world.policy):
        found += borrowed(parts.known, requester, world, why=why)
    if workload.deadline:
        found += deadline_in_line(parts.known, requester, world, deadline=workload.deadline)
    return found


def _why_evictions_fail(evictions: EvictionEffect, policy: Policy) -> str:
    adds_rule = policy.workloads.job_evictions is JobEvictions.IGNORE
    return evictions.always or ("" if adds_rule else evictions.without_rule)
