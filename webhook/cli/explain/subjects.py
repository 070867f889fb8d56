"""Subjects of an explanation: a pod of the world, or one pod of each role that a manifest describes. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from webhook.core.explain.idle_pods import idle_text
from webhook.core.explain.unusual_pods import stage_text
from webhook.core.gangs.gang_plans import GangPlan
from webhook.core.model.decision import Deny
from webhook.core.model.names import Namespace, Uid
from webhook.core.world.world import World
from webhook.kube.kinds.kind_row import KindTable
from webhook.kube.kinds.model import Unknown, listed, mapping, text
from webhook.kube.kinds.related import Related
from webhook.kube.objects import keys
from webhook.kube.pod.pods import fallback_uid
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.gang_size import plan_of_workload
from webhook.simulation.simulate import Template, read_template

_ENDED: Final = frozenset({"Succeeded", "Failed"})


class PodState(StrEnum):
    """What a pod that exists does now; pending: admitted, on no node."""

    RUNNING = "running"
    BOUND = "bound"
    ENDED = "ended"
    QUEUED = "queued"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Existing:
    """A pod that exists: its UID as the world knows it, its node and the decision at its creation.

    `state` is what it does now, and `since` the time at which that began or at which it was created, "" for unknown.
    `evict_at` and `evict_for` announce its eviction, "" without one; `evicted_at` is when it was evicted. `stage` is
    where it is in its life, "" where that is not known, and `stage_text` what is unusual about it, "" for nothing.
    `idle_text` says that it does not use its GPUs, "" if it does or nothing is known.
    """

    node: str
    tier: str
    decision_annotation: str | None
    uid: Uid
    state: "PodState"
    since: str = ""
    evict_at: str = ""
    evict_for: str = ""
    evicted_at: str = ""
    stage: str = ""
    stage_text: str = ""
    idle_text: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """One pod to explain. `count` is how many equal pods there would be, None where that is not known.

    `pods` states how many pods of a workload of the cluster exist. `plan` is what a manifest says of its gang, None
    for a pod that is explained alone.
    """

    title: str
    namespace: Namespace
    template: Template | Deny
    count: int | None = 1
    existing: Existing | None = None
    pods: str = ""
    plan: GangPlan | None = None


def find_pod(found: Iterable[Mapping[str, Any]], name: str, *, namespace: str) -> Mapping[str, Any] | None:
    """Return a pod among the objects of a world; None where it is not there."""
    return next((pod for pod in pods_in(found, namespace) if mapping(pod["metadata"]).get("name") == name), None)


def pods_in(found: Iterable[Mapping[str, Any]], namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield the pods of one namespace."""
    for each in found:
        metadata = mapping(each.get("metadata"))
        if each.get("kind") == "Pod" and (text(metadata.get("namespace")) or "default") == namespace:
            yield each


def subject_of_pod(pod: Mapping[str, Any], *, namespace: str, world: World, pods: str = "", title: str = "") -> Subject:
    """Return the subject of a pod that exists."""
    metadata = mapping(pod.get("metadata"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    known = uid_of(metadata, namespace)
    found, stage = world.pod(known), world.stages.of(known)
    existing = Existing(
        text(mapping(pod.get("spec")).get("nodeName")),
        text(labels.get(keys.TIER)),
        annotations.get(keys.DECISION),
        known,
        _state(pod, known, world),
        text(mapping(pod.get("status")).get("startTime")) or text(metadata.get("creationTimestamp")),
        text(annotations.get(keys.EVICT_AT)),
        text(annotations.get(keys.EVICT_FOR)),
        _evicted_at(pod),
        "" if stage is None else str(stage),
        "" if found is None or stage is None else stage_text(found, stage, world),
        "" if found is None else idle_text(found, world.policy),
    )
    template = read_template(pod, namespace=Namespace(namespace), world=world)
    title = title or f"Pod {namespace}/{text(metadata.get('name'))}"
    return Subject(title, Namespace(namespace), template, existing=existing, pods=pods)


def _state(pod: Mapping[str, Any], uid: Uid, world: World) -> PodState:
    if has_ended(pod):
        return PodState.ENDED
    if text(mapping(pod.get("spec")).get("nodeName")):
        return PodState.RUNNING if text(mapping(pod.get("status")).get("phase")) == "Running" else PodState.BOUND
    return PodState.QUEUED if uid in world.waiting else PodState.PENDING


def uid_of(metadata: Mapping[str, Any], namespace: str) -> Uid:
    """Return the UID of a pod by its metadata, as the world knows it."""
    return Uid(text(metadata.get("uid"))) or fallback_uid(namespace, text(metadata.get("name")))


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod ended and holds no GPUs."""
    return text(mapping(pod.get("status")).get("phase")) in _ENDED


def _evicted_at(pod: Mapping[str, Any]) -> str:
    """Return when a pod was evicted by the Eviction API; "" where it was not."""
    for condition in listed(mapping(pod.get("status")).get("conditions")):
        found = mapping(condition)
        if (found.get("type"), found.get("status"), found.get("reason")) == (
            "DisruptionTarget",
            "True",
            "EvictionByEvictionAPI",
        ):
            return text(found.get("lastTransitionTime"))
    return ""


def pods_of_manifests(
    found: Iterable[Mapping[str, Any]], *, namespace: str, world: World, kinds: KindTable
) -> Iterator[Subject | Unknown]:
    """Yield one pod of each role of each workload; Unknown where the pods are not known."""
    objects = list(found)
    related = Related.of(objects, namespace=namespace)
    for each in objects:
        workload = expand(each, kinds=kinds, related=related, namespace=namespace)
        if isinstance(workload, Unknown):
            yield workload
        if workload is None or isinstance(workload, Unknown):
            continue
        title = f"{workload.kind} {workload.namespace}/{workload.name}"
        if workload.is_elsewhere:
            yield Unknown(f"{title}: {workload.warnings[0]}")
            continue
        for pods in workload.pod_sets:
            if not pods.template:
                yield Unknown(f"{title}: {pods.problem}")
                continue
            home = Namespace(workload.namespace)
            template = read_template(pods.template, namespace=home, world=world, is_new=True)
            role = f", role {pods.role}" if pods.role else ""
            plan = None
            if workload.kind != "Pod" and not isinstance(template, Deny):
                weights = world.policy.resources
                plan = plan_of_workload(each, template.pod, kinds=kinds, namespace=namespace, weights=weights)
            yield Subject(f"{title}{role}", home, template, pods.count, plan=plan)
