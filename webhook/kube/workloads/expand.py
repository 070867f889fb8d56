"""An object of any kind as the pods that its controllers would make of it."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from webhook.kube import keys
from webhook.kube.workloads.model import NO_RELATED, Json, PodSet, Related, Unknown, Workload, mapping, text
from webhook.kube.workloads.paths import Pods, pods_at
from webhook.kube.workloads.row import ITSELF, NOBODY, Found, KindTable, Row, Scene

_BUILT_IN_GROUPS: Final = frozenset({"", "apps", "batch", "autoscaling", "policy", "extensions"})
"""Groups of the API server itself, besides those under k8s.io: all of their kinds that make pods are in the table."""

_HELD_BACK: Final = frozenset(
    {
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


def expand(document: Json, *, kinds: KindTable, related: Related = NO_RELATED) -> Workload | Unknown | None:
    """Tell which pods an object makes; None where it makes none, Unknown where nobody described its kind."""
    api_version, kind = text(document.get("apiVersion")), text(document.get("kind"))
    if not api_version or not kind:
        return Unknown("no Kubernetes object: it has no apiVersion or no kind")
    group = api_version.rpartition("/")[0]
    row = kinds.get((group, kind))
    if row is None:
        return _undescribed(document, group, kind)
    metadata = mapping(document.get("metadata"))
    scene = Scene(
        text(metadata.get("namespace")) or "default",
        text(metadata.get("name")) or text(metadata.get("generateName")).rstrip("-"),
        related,
    )
    found = _read(document, row, scene)
    sets = tuple(_pod_set(pods, row, api_version, scene) for pods in found.pods)
    return Workload(api_version, kind, scene.namespace, scene.name, sets, row.kind.is_gang, found.warnings)


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


def _read(document: Json, row: Row, scene: Scene) -> Found:
    if row.read is not None:
        return row.read(document, scene)
    return Found(tuple(pods for rule in row.kind.pods for pods in pods_at(document, rule)))


def _pod_set(pods: Pods, row: Row, api_version: str, scene: Scene) -> PodSet:
    count, problem = pods.count.number, pods.count.problem
    template = pods.template
    if "containers" in template:
        template = {"spec": template}
    if not isinstance(mapping(template.get("spec")).get("containers"), list):
        return PodSet(pods.role, count, {}, problem or "it has no pod template with containers")
    return PodSet(pods.role, count, _pod(template, pods.role, row, api_version, scene), problem)


def _pod(template: Json, role: str, row: Row, api_version: str, scene: Scene) -> Json:
    """Dress a template as the pod that its controller would create."""
    given = mapping(template.get("metadata"))
    made = {"name": scene.name, "role": role, "type": role.lower()}
    labels = {key: value.format(**made) for key, value in row.labels.items()} | dict(mapping(given.get("labels")))
    metadata: dict[str, Any] = {
        "namespace": scene.namespace,
        "labels": labels,
        "annotations": dict(mapping(given.get("annotations"))),
    }
    if row.maker is NOBODY:
        metadata["name"] = scene.name
    else:
        owner = (
            row.maker if row.maker is not ITSELF else row.maker._replace(api_version=api_version, kind=row.kind.kind)
        )
        metadata["generateName"] = "-".join(filter(None, (scene.name, role.lower(), "")))
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": scene.name, "controller": True}
        ]
    return {"apiVersion": keys.CORE_API, "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _undescribed(document: Json, group: str, kind: str) -> Unknown | None:
    """Judge an object of a kind that is not in the table by what it holds."""
    if group in _BUILT_IN_GROUPS or group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"):
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
    """Yield the places where a value looks like part of a pod: a list of containers, or container resources."""
    if isinstance(value, dict):
        for key, item in value.items():
            where = f"{path}.{key}".lstrip(".")
            is_containers = key == "containers" and isinstance(item, list)
            is_resources = key == "resources" and isinstance(item, dict) and item.keys() & {"limits", "requests"}
            if is_containers or is_resources:
                yield where
            else:
                yield from _pod_like(item, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_like(item, f"{path}[{index}]")
