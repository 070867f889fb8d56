"""An object of any kind as the pods that its controllers would make of it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from webhook.kube.objects import bounds, keys
from webhook.kube.workloads.evictions import on_evictions
from webhook.kube.workloads.kind_row import ITSELF, NOBODY, Found, KindTable, Row, Scene
from webhook.kube.workloads.model import Json, PodSet, Unknown, Workload, mapping, text
from webhook.kube.workloads.paths import Maker, Pods, count_at, pods_at
from webhook.kube.workloads.related import NO_RELATED, Related

_BUILT_IN_GROUPS: Final = frozenset({"", "apps", "batch", "autoscaling", "policy", "extensions"})
"""Groups of the API server itself, besides those under k8s.io: all of their kinds that make pods are in the table."""

_HELD_BACK: Final = frozenset(
    {
        ("argoproj.io", "ClusterWorkflowTemplate"),
        ("argoproj.io", "WorkflowTemplate"),
        ("kueue.x-k8s.io", "Workload"),
        ("mlops.seldon.io", "ServerConfig"),
        ("serving.kserve.io", "ClusterServingRuntime"),
        ("serving.kserve.io", "LLMInferenceServiceConfig"),
        ("serving.kserve.io", "ServingRuntime"),
        ("trainer.kubeflow.org", "ClusterTrainingRuntime"),
        ("trainer.kubeflow.org", "TrainingRuntime"),
    }
)
"""Kinds that keep templates for others: no pod comes of them alone."""


def expand(
    document: Json, *, kinds: KindTable, related: Related = NO_RELATED, namespace: str = "default"
) -> Workload | Unknown | None:
    """Tell which pods an object makes; None where it makes none, Unknown where nobody described its kind.

    `namespace` is that of objects that name none.
    """
    api_version, kind = text(document.get("apiVersion")), text(document.get("kind"))
    if not api_version or not kind:
        return Unknown("no Kubernetes object: it has no apiVersion or no kind")
    group = api_version.rpartition("/")[0]
    row = kinds.get((group, kind))
    if row is None:
        return _undescribed(document, group, kind)
    metadata = mapping(document.get("metadata"))
    name = text(metadata.get("name")) or text(metadata.get("generateName")).rstrip("-")
    scene = Scene(api_version, text(metadata.get("namespace")) or namespace, name, related)
    found = _read(document, row, scene)
    parts = tuple(islice(_of_parts(found.parts, scene, kinds), bounds.POD_SETS + 1))
    if len(found.pods) + len(found.later) + len(parts) > bounds.POD_SETS:
        return Unknown(f"it makes more than {bounds.POD_SETS} groups of pods: they are judged one by one")
    sets = (*(_pod_set(pods, row, scene) for pods in found.pods), *parts)
    if not sets and not found.warnings:
        sets = (PodSet("", None, {}, f"it describes no pods where a {kind} keeps them"),)
    later = tuple(_pod_set(pods, row, scene) for pods in found.later)
    evictions = on_evictions(document, group, kind)
    return Workload(api_version, kind, scene.namespace, name, sets, row.kind.is_gang, found.warnings, later, evictions)


def flattened(documents: Iterable[object]) -> Iterator[Json]:
    """Yield the objects of a stream, those inside a List one by one."""
    for document in documents:
        if not isinstance(document, dict):
            continue
        items = document.get("items")
        if text(document.get("kind")).endswith("List") and isinstance(items, list):
            yield from flattened(items)
        else:
            yield document


def _of_parts(parts: Iterable[Json], scene: Scene, kinds: KindTable) -> Iterator[PodSet]:
    """Yield the pods of objects that another makes, each called after its object; those of such objects are unknown."""
    for number, part in enumerate(parts):
        name = text(mapping(part.get("metadata")).get("name")) or f"{text(part.get('kind'))} {number}"
        row = kinds.get((text(part.get("apiVersion")).rpartition("/")[0], text(part.get("kind"))))
        if row is not None and row.makes_objects:
            yield PodSet(name, None, {}, f"{name} makes objects itself: its pods are judged one by one")
            continue
        found = expand(part, kinds=kinds, related=scene.related, namespace=scene.namespace)
        if isinstance(found, Unknown):
            yield PodSet(name, None, {}, found.reason)
        elif found is not None:
            yield from (replace(each, role=f"{name}/{each.role}".rstrip("/")) for each in found.pod_sets)


def _read(document: Json, row: Row, scene: Scene) -> Found:
    """Read an object at its peak: an autoscaler sets spec.replicas, by which all kinds count that can be scaled."""
    most = scene.related.scaled_to(row.kind.kind, scene.name, namespace=scene.namespace)
    if most is None:
        return _as_written(document, row, scene)
    spec = mapping(document.get("spec"))
    peak = count_at(spec, "replicas", default=1, named="spec.replicas").at_least(most)
    if peak.number is not None:
        return _as_written({**document, "spec": {**spec, "replicas": peak.number}}, row, scene)
    found = _as_written(document, row, scene)
    return found._replace(pods=tuple(replace(pods, count=peak) for pods in found.pods))


def _as_written(document: Json, row: Row, scene: Scene) -> Found:
    if row.read is not None:
        return row.read(document, scene)
    return Found(tuple(pods for rule in row.kind.pods for pods in pods_at(document, rule)))


def _pod_set(pods: Pods, row: Row, scene: Scene) -> PodSet:
    count, problem = pods.count
    template = {"spec": pods.template} if "containers" in pods.template else pods.template
    if not isinstance(mapping(template.get("spec")).get("containers"), list):
        return PodSet(pods.role, count, {}, problem or "it has no pod template with containers")
    maker = pods.maker or row.maker
    if maker is ITSELF:
        maker = Maker(scene.api_version, row.kind.kind)
    return PodSet(pods.role, count, _pod(template, pods.role, row, maker, scene), problem)


def _pod(template: Json, role: str, row: Row, maker: Maker, scene: Scene) -> Json:
    """Dress a template as the pod that its controller would create."""
    given = mapping(template.get("metadata"))
    made = {"name": scene.name, "role": role, "type": role.lower()}
    labels = {key: value.format(**made) for key, value in row.labels.items()}
    metadata: dict[str, Any] = {
        "namespace": scene.namespace,
        "labels": {**labels, **mapping(given.get("labels"))},
        "annotations": dict(mapping(given.get("annotations"))),
    }
    if maker is NOBODY:
        metadata["name"] = scene.name
        if owners := given.get("ownerReferences"):
            metadata["ownerReferences"] = owners
    else:
        metadata["generateName"] = "".join(f"{part}-" for part in (scene.name, role.lower()) if part)
        metadata["ownerReferences"] = [
            {"apiVersion": maker.api_version, "kind": maker.kind, "name": scene.name, "controller": True}
        ]
    return {"apiVersion": keys.CORE_API, "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _undescribed(document: Json, group: str, kind: str) -> Unknown | None:
    """Judge an object of a kind that is not in the table by what it holds."""
    if group in _BUILT_IN_GROUPS or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io")):
        return None
    if (group, kind) in _HELD_BACK:
        return None
    where = next(_pod_like(document, ""), None)
    if where is None:
        return None
    return Unknown(
        f"nobody described kind {kind} of {group}, which holds containers at {where}; "
        "describe it in policy under workloads.kinds"
    )


def _pod_like(value: object, path: str) -> Iterator[str]:
    """Yield the places where a value looks like part of a pod: containers, or resources other than cpu and memory."""
    if isinstance(value, dict):
        for key, item in value.items():
            where = f"{path}.{key}".lstrip(".")
            is_containers = key == "containers" and isinstance(item, list)
            is_container = key == "container" and "image" in mapping(item)
            if is_containers or is_container or (key == "resources" and _asks_for_devices(mapping(item))):
                yield where
            else:
                yield from _pod_like(item, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_like(item, f"{path}[{index}]")


def _asks_for_devices(resources: Json) -> bool:
    """Tell whether an extended resource is named, as all devices are: vendor.example/device."""
    return any("/" in str(name) for side in ("limits", "requests") for name in mapping(resources.get(side)))
