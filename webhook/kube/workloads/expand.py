"""A workload to pods, parts, gangs.

Whether a workload survives the eviction of some of its pods, by its manifest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from webhook.core.admission.pools import as_created
from webhook.core.admission.workload_fit import Part, borrowed, deadline_in_line, fit_problems
from webhook.core.model.amounts import Namespace
from webhook.core.model.demand import Weights
from webhook.core.model.pod import Requester
from webhook.core.model.policy import JobEvictions, Policy, Pool
from webhook.core.model.reasons import Code, Reason
from webhook.core.reclaim.victims import FailureBudget
from webhook.core.world.world import World
from webhook.kube.admission.copied_pod import may_be_copied, without_copied_decision
from webhook.kube.admission.job_review import ReviewedJob, gets_rule
from webhook.kube.kinds.job_failures import Job, job_budget
from webhook.kube.kinds.kind_row import (
    NO_CONTROLLER,
    NO_RELATED,
    OWN_CONTROLLER,
    KindTable,
    PodsFound,
    ReadContext,
    Related,
    Row,
    running_deadline,
)
from webhook.kube.kinds.model import (
    SURVIVES,
    TOO_LARGE,
    Budget,
    BudgetSpentError,
    ControllerKind,
    EvictionEffect,
    Json,
    Pods,
    PodSet,
    Unknown,
    Workload,
    count_at,
    mapping,
    pods_at,
    text,
)
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.bounds import shortened
from webhook.kube.pod.gangs import domain_request, is_requested
from webhook.kube.pod.pods import InvalidPod, to_pod
from webhook.kube.workloads.gangs import gang_marks, marked, marks_of
from webhook.kube.workloads.unknown_kinds import unknown_kind

_Kind = TypeVar("_Kind")

_AT_ONCE: Final = "it fails with its first evicted pod"
_NO_LIMIT: Final = 2**31 - 1
"""The backoffLimit that means no limit: JobSet's documentation recommends it for in-place restarts."""


def eviction_effect(document: Json, row: Row, budget: Budget) -> EvictionEffect:
    """Return the effect of evictions on an object of a row's kind."""
    if row.jobs is not None:
        return _of_jobs(list(row.jobs(document, budget)))
    if row.fails:
        return EvictionEffect(always=row.fails)
    if row.failures is None:
        return SURVIVES
    found = _converted(document, row.failures.item)
    fails = found is not None and row.failures.budget(found) is not None
    return EvictionEffect(always=_AT_ONCE) if fails else SURVIVES


def _of_jobs(jobs: list[tuple[Json, str]]) -> EvictionEffect:
    """Return the effect on Jobs, each given with its default restartPolicy."""
    without_rule = ""
    for document, default in jobs:
        job, reviewed = _converted(document, Job), _converted(document, ReviewedJob)
        if job is None or reviewed is None:
            continue
        budget = job_budget(job)
        if budget is None or budget.limit >= _NO_LIMIT:
            continue
        if not gets_rule(reviewed, restart_policy=default):
            return EvictionEffect(always=_described(budget))
        without_rule = without_rule or _described(budget)
    return EvictionEffect(without_rule=without_rule)


def _described(budget: FailureBudget) -> str:
    if budget.limit == 0:
        return _AT_ONCE
    return f"it fails after more than {budget.limit} evicted pods"


def _converted(document: Mapping[str, object], what: type[_Kind]) -> _Kind | None:
    """Convert an object; None if it is malformed, which the API server reports."""
    try:
        return msgspec.convert({"metadata": {}, **document}, what)
    except objects.UNREADABLE:
        return None


# From an object of any kind to the pods that its controllers would create.


_WITHOUT: Final = {
    keys.GANG: "they start one by one",
    keys.RUN_TIME: "it is not shown for them",
    keys.MINIMUM: "no replica is kept for it",
}
"""Annotations of a workload that are read on its pods, and what is without them there."""
_NAMES: Final = 5
"""Times that a pod's role or its workload's name is in its metadata, besides its labels."""


def expand(
    document: Json,
    *,
    kinds: KindTable,
    related: Related = NO_RELATED,
    namespace: str = "default",
    budget: Budget | None = None,
) -> Workload | Unknown | None:
    """Return the pods that an object creates; None if it creates none, Unknown if its kind is not in `kinds`.

    `namespace` is the default for objects without one. What is left of the budget, by default a whole one, may be used
    for what follows with the same object; an object that takes more is Unknown.
    """
    budget = budget or Budget()
    try:
        row = row_of(document, kinds, budget)
        if isinstance(row, Row):
            if not row.makes_pods:
                return None
            budget.read(document)
            return _expanded(document, row, kinds, related=related, namespace=namespace, budget=budget)
    except BudgetSpentError:
        return Unknown(TOO_LARGE, is_too_large=True)
    return row


def row_of(document: Json, kinds: KindTable, budget: Budget) -> Row | Unknown | None:
    """Return the row of an object's kind; None for a kind without pods, Unknown for one that is not described.

    Raises BudgetSpentError.
    """
    api_version, kind = text(document.get("apiVersion")), text(document.get("kind"))
    if not api_version or not kind:
        return Unknown("not a Kubernetes object: it has no apiVersion or no kind")
    group = api_version.rpartition("/")[0]
    return kinds.get((group, kind)) or unknown_kind(document, group, kind, budget)


def _expanded(
    document: Json, row: Row, kinds: KindTable, *, related: Related, namespace: str, budget: Budget
) -> Workload | Unknown:
    """Return the pods of an object of a known kind. Raises BudgetSpentError."""
    api_version, kind = text(document.get("apiVersion")), row.kind.kind
    metadata = mapping(document.get("metadata"))
    name = text(metadata.get("name")) or text(metadata.get("generateName")).rstrip("-")
    context = ReadContext(api_version, text(metadata.get("namespace")) or namespace, name, related, budget)
    found = _read(marked(document, budget), row, context)
    parts = tuple(islice(_of_parts(found.parts, context, kinds), bounds.POD_SETS + 1))
    if len(found.pods) + len(parts) > bounds.POD_SETS:
        return Unknown(f"it creates more than {bounds.POD_SETS} groups of pods: they are checked one by one")
    sets = (*(_pod_set(pods, row, context) for pods in found.pods), *parts)
    if not sets and not found.warnings:
        sets = (PodSet("", None, {}, f"it has no pod template where a {kind} has one"),)
    if row.manager is not None and (other := row.manager.other(document)):
        why = f"not judged: {row.manager.path} is {shortened(other)}, which runs it in another cluster"
        return Workload(
            api_version,
            kind,
            context.namespace,
            name,
            tuple(replace(each, count=0, problem=None) for each in sets if each.template),
            row.kind.is_gang,
            (why,),
            is_elsewhere=True,
        )
    return Workload(
        api_version,
        kind,
        context.namespace,
        name,
        sets,
        row.kind.is_gang,
        tuple(map(shortened, found.warnings)) + _misplaced(document, sets, budget),
        found.is_at_most,
        eviction_effect(document, row, budget),
        running_deadline(document, row.deadline, found.timeouts),
        row.surge(document, sets[0].count) if row.surge is not None and sets and sets[0].count else None,
    )


def flattened(documents: Iterable[object]) -> Iterator[Json]:
    """Yield the objects of a stream, and the items of Lists."""
    for document in documents:
        if not isinstance(document, dict):
            continue
        items = document.get("items")
        if text(document.get("kind")).endswith("List") and isinstance(items, list):
            yield from flattened(items)
        else:
            yield document


def _misplaced(document: Json, sets: Iterable[PodSet], budget: Budget) -> tuple[str, ...]:
    """Return a warning for each annotation of a workload that is read on pods, if not all of its pods get it."""
    marks = {key: effect for key, effect in _WITHOUT.items() if key in marks_of(document)}
    if not marks:
        return ()
    templates = [mapping(mapping(pods.template.get("metadata")).get("annotations")) for pods in sets if pods.template]
    missing = [key for key in marks if not all(_is_said(key, annotations) for annotations in templates)]
    if not missing or gang_marks(document, budget):
        return ()  # where its templates do not have it, the webhook copies it
    return tuple(
        f"annotation {key} is read on pods: put it on the pod template too, or {marks[key]}" for key in missing
    )


def _is_said(key: str, annotations: Json) -> bool:
    """Whether pods say what their workload does; their own run time goes before its."""
    return annotations.get(key) == "true" if key == keys.GANG else key in annotations


def _of_parts(parts: Iterable[Json], context: ReadContext, kinds: KindTable) -> Iterator[PodSet]:
    """Yield the pods of objects that another creates, with the object's name in the role; nested ones are unknown."""
    for number, part in enumerate(parts):
        name = text(mapping(part.get("metadata")).get("name")) or f"{text(part.get('kind'))} {number}"
        row = row_of(part, kinds, context.budget)
        if isinstance(row, Row) and row.makes_objects:
            yield PodSet(name, None, {}, f"{shortened(name)} creates objects itself: its pods are checked one by one")
            continue
        found: Workload | Unknown | None
        if isinstance(row, Row) and not row.makes_pods:
            continue
        if isinstance(row, Row):
            budget = context.budget
            found = _expanded(part, row, kinds, related=context.related, namespace=context.namespace, budget=budget)
        else:
            found = row
        if isinstance(found, Unknown):
            yield PodSet(name, None, {}, found.reason)
        elif found is not None:
            context.budget.write(len(name) * len(found.pod_sets))
            yield from (replace(each, role=f"{name}/{each.role}".rstrip("/")) for each in found.pod_sets)


def _read(document: Json, row: Row, context: ReadContext) -> PodsFound:
    """Return the pods of an object at its peak: an autoscaler sets spec.replicas, which all scalable kinds have."""
    maximum = context.related.scaled_to(row.kind.kind, context.name, namespace=context.namespace)
    if maximum is None:
        return _as_written(document, row, context)
    spec = mapping(document.get("spec"))
    peak = count_at(spec, "replicas", default=1, named="spec.replicas").at_least(maximum)
    if peak.number is not None:
        return _as_written({**document, "spec": {**spec, "replicas": peak.number}}, row, context)
    found = _as_written(document, row, context)
    return found._replace(pods=tuple(replace(pods, count=peak) for pods in found.pods))


def _as_written(document: Json, row: Row, context: ReadContext) -> PodsFound:
    if row.read is not None:
        return row.read(document, context)
    return PodsFound(tuple(pods for rule in row.kind.pods for pods in pods_at(document, rule, context.budget)))


def _pod_set(pods: Pods, row: Row, context: ReadContext) -> PodSet:
    count, problem = pods.count
    template = {"spec": pods.template} if "containers" in pods.template else pods.template
    problem = None if problem is None else shortened(problem)
    if not isinstance(mapping(template.get("spec")).get("containers"), list):
        return PodSet(pods.role, count, {}, problem or "it has no pod template with containers")
    controller = pods.controller or row.controller
    if controller is OWN_CONTROLLER:
        controller = ControllerKind(context.api_version, row.kind.kind)
    if pods.shared:  # as the Job's controller names the PodGroup that it makes
        spec = {**mapping(template["spec"]), "schedulingGroup": {"podGroupName": context.name}}
        template = {**template, "spec": spec}
    return PodSet(pods.role, count, _pod(template, pods.role, row, controller, context), problem, pods.shared)


def _pod(template: Json, role: str, row: Row, controller: ControllerKind, context: ReadContext) -> Json:
    """Return the pod that a controller would create from a template."""
    given = mapping(template.get("metadata"))
    own, annotations = mapping(given.get("labels")), mapping(given.get("annotations"))
    context.budget.step(len(own) + len(annotations))
    context.budget.write((len(context.name) + len(role)) * (len(row.labels) + _NAMES))
    made = {"name": context.name, "role": role, "type": role.lower()}
    labels = {key: value.format(**made) for key, value in row.labels.items()}
    metadata: dict[str, Any] = {
        "namespace": context.namespace,
        "labels": {**labels, **own},
        "annotations": dict(annotations),
    }
    if controller is NO_CONTROLLER:
        metadata["name"] = context.name
        if owners := given.get("ownerReferences"):
            metadata["ownerReferences"] = owners
    else:
        metadata["generateName"] = "".join(f"{part}-" for part in (context.name, role.lower()) if part)
        metadata["ownerReferences"] = [_owner(role, row, controller, context)]
    spec = context.related.with_defaults(template["spec"], context.namespace, context.budget)
    return {"apiVersion": keys.CORE_API, "kind": "Pod", "metadata": metadata, "spec": spec}


def _owner(role: str, row: Row, controller: ControllerKind, context: ReadContext) -> Json:
    """Return the controller of a pod that does not exist: other objects than the workload itself make one role each."""
    made_by = "" if controller.kind == row.kind.kind else f"/{role}"
    return {
        "apiVersion": controller.api_version,
        "kind": controller.kind,
        "name": context.name,
        "uid": f"{controller.kind}/{context.name}{made_by}",
        "controller": True,
    }


# Evaluation of a workload's pod sets together by the core.


NOT_JUDGED: Final = Reason(Code.TOO_LARGE, "{problem}", {"problem": TOO_LARGE})
"""The only reason for a workload that takes more than its budget."""

_PART_STEPS: Final = 500
_CONTAINER_STEPS: Final = 12
"""The cost of judging a pod, and of each of its containers."""

_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


def to_part(
    pod_set: PodSet, *, namespace: str, weights: Weights, budget: Budget, pools: Sequence[Pool] = ()
) -> Part | InvalidPod:
    """Translate a pod set that has a template; `weights` as in read_demand. Raises BudgetSpentError.

    A template that was made from a pod has what the user wrote on it, apart from conditions of pools that are unknown.
    """
    try:
        written = msgspec.json.encode(pod_set.template)
        budget.write(len(written))
        pod = _pod_decoder.decode(written)
        budget.step(_cost(pod, len(written)))
        if may_be_copied(pod):
            pod = without_copied_decision(pod, pools).pod
    except objects.UNREADABLE as error:
        return InvalidPod((objects.describe(error),))
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

    They may fail by evictions, or by a deadline that runs on while they are queued. NOT_JUDGED alone if it takes more
    than the budget.
    """
    try:
        together = (
            [(replace(pods, count=1),) for pods in workload.pod_sets] if workload.is_at_most else [workload.pod_sets]
        )
        times = [_parts(pod_sets, workload, world, budget) for pod_sets in together]
    except BudgetSpentError:
        return (NOT_JUDGED,)
    found: list[Reason] = []
    for parts in times:
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
        part = to_part(
            pod_set,
            namespace=workload.namespace,
            weights=world.policy.resources,
            budget=budget,
            pools=world.policy.pools,
        )
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
