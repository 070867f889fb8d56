"""Evaluation of a workload's pod sets together by the core."""

from dataclasses import replace
from typing import Final

import msgspec

from webhook.core.admission.resolve_demand import as_created
from webhook.core.admission.workload_fit import Part, borrowed, deadline_in_line, fit_problems
from webhook.core.model.demand import Weights
from webhook.core.model.names import Namespace
from webhook.core.model.pod import Requester
from webhook.core.model.policy import JobEvictions, Policy
from webhook.core.model.reason import Reason
from webhook.core.world.world import World
from webhook.kube.objects import objects
from webhook.kube.pod.domain_requests import domain_request
from webhook.kube.pod.gangs import is_requested
from webhook.kube.pod.pods import InvalidPod, to_pod
from webhook.kube.workloads.model import EvictionEffect, PodSet, Workload

_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


def to_part(pod_set: PodSet, *, namespace: str, weights: Weights) -> Part | InvalidPod:
    """Translate a pod set that has a template; `weights` as in read_demand."""
    try:
        pod = _pod_decoder.decode(msgspec.json.encode(pod_set.template))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as error:
        return InvalidPod((objects.describe(error),))
    made = to_pod(pod, namespace=Namespace(namespace), weights=weights)
    if isinstance(made, InvalidPod):
        return made
    domain = domain_request(made.annotations)
    return Part(pod_set.role, made, pod_set.count, domain, is_gang=is_requested(made.annotations, domain))


def judge(workload: Workload, requester: Requester, world: World) -> tuple[Reason, ...]:
    """Return every reason why the known pods of a workload can never all run, or may end before they ran.

    They may fail by evictions, or by a deadline that runs on while they wait in line.
    """
    found = [*_judged(workload.pod_sets, workload, requester, world)]
    for pod_set in workload.later:
        found += _judged((pod_set,), workload, requester, world)
    return tuple(dict.fromkeys(found))


def _judged(pod_sets: tuple[PodSet, ...], workload: Workload, requester: Requester, world: World) -> tuple[Reason, ...]:
    """Return the reasons for pods that run at the same time."""
    parts: list[Part] = []
    refused: list[Reason] = []
    for pod_set in pod_sets:
        if not pod_set.template:
            continue
        part = to_part(pod_set, namespace=workload.namespace, weights=world.policy.resources)
        if isinstance(part, InvalidPod):
            refused += part.reasons
        else:
            parts.append(replace(part, pod=as_created(part.pod, world.policy)))
    found = (*refused, *fit_problems(parts, requester, world))
    if why := _why_evictions_fail(workload.evictions, world.policy):
        found += borrowed(parts, requester, world, why=why)
    if workload.deadline:
        found += deadline_in_line(parts, requester, world, deadline=workload.deadline)
    return found


def _why_evictions_fail(evictions: EvictionEffect, policy: Policy) -> str:
    adds_rule = policy.workloads.job_evictions is JobEvictions.IGNORE
    return evictions.always or ("" if adds_rule else evictions.without_rule)
