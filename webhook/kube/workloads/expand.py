"""From an object of any kind to the pods that its controllers would create."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from webhook.kube.kinds.budget import TOO_LARGE, Budget, BudgetSpentError
from webhook.kube.kinds.deadlines import running_deadline
from webhook.kube.kinds.kind_row import NO_CONTROLLER, OWN_CONTROLLER, KindTable, PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Json, PodSet, Unknown, Workload, mapping, text
from webhook.kube.kinds.paths import ControllerKind, Pods, count_at, pods_at
from webhook.kube.kinds.related import NO_RELATED, Related
from webhook.kube.objects import bounds, keys
from webhook.kube.objects.bounds import shortened
from webhook.kube.workloads.evictions import eviction_effect
from webhook.kube.workloads.gang_marks import gang_marks, marked, marks_of
from webhook.kube.workloads.unknown_kinds import unknown_kind

_WITHOUT: Final = {
    keys.GANG: "they start one by one",
    keys.RUN_TIME: "their likely starts do not know it",
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
    if len(found.pods) + len(found.later) + len(parts) > bounds.POD_SETS:
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
    later = tuple(_pod_set(pods, row, context) for pods in found.later)
    return Workload(
        api_version,
        kind,
        context.namespace,
        name,
        sets,
        row.kind.is_gang,
        tuple(map(shortened, found.warnings)) + _misplaced(document, sets, budget),
        later,
        eviction_effect(document, row, budget),
        running_deadline(document, row.deadline),
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
