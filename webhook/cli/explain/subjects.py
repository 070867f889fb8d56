"""The pods that `fairgate explain` is asked about.

Subjects of an explanation: a pod of the world, or one pod of each role that a manifest describes. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from webhook.core.admission.assessment import assess
from webhook.core.admission.domain_rules import DomainSteps, domain_steps
from webhook.core.explain.explanation import Explanation
from webhook.core.explain.pod_rows import idle_text, stage_text
from webhook.core.line.gang_plans import GangPlan
from webhook.core.model.amounts import GangId, Namespace, Uid, plural
from webhook.core.model.decision import Deny
from webhook.core.model.pod import CONTROLLER
from webhook.core.world.world import World
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.admission.trial_pods import Answer, GangRole, Simulator, judge_whole, waiting_members, waits_for_gang
from webhook.kube.kinds.kind_row import KindTable, Related
from webhook.kube.kinds.model import Json, PodSet, Unknown, Workload, listed, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod.pods import fallback_uid
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.gang_size import plan_of_workload

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
    found: Iterable[Mapping[str, Any]],
    *,
    namespace: str,
    world: World,
    kinds: KindTable,
    limit_ranges: Iterable[Mapping[str, Any]] = (),
) -> Iterator[Subject | Unknown]:
    """Yield one pod of each role of each workload; Unknown where the pods are not known.

    The world's `limit_ranges` give devices as those of the manifests do.
    """
    objects = list(found)
    related = Related.of(chain(limit_ranges, objects), namespace=namespace)
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


# Manifests whose pods are a queued gang: explained as the leader judges them once all of the pods have come.


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


# A workload of the cluster: its pods, and the one to explain: the next, one that waits, or one that runs.
#
# Its pods are known by the labels of its template and by their controller, which is the workload or carries its name.


_TEMPLATE_HASH: Final = "pod-template-hash"


def subjects_of_workload(
    document: Json, found: Sequence[Mapping[str, Any]] | None, *, namespace: str, world: World, kinds: KindTable
) -> Iterator[Subject | Unknown]:
    """Yield the subject of each role of a workload that exists; `found` is None if pods were not read."""
    workload = expand(document, kinds=kinds, namespace=namespace)
    if isinstance(workload, Unknown):
        yield workload
    if workload is None or isinstance(workload, Unknown):
        return
    title = f"{workload.kind} {workload.namespace}/{workload.name}"
    if workload.is_elsewhere:
        yield Unknown(f"{title}: {workload.warnings[0]}")
        return
    of_it = [pod for pod in pods_in(found or (), workload.namespace) if _is_made_by(pod, workload)]
    for each in workload.pod_sets:
        role = f"{title}, role {each.role}" if each.role else title
        if not each.template:
            yield Unknown(f"{role}: {each.problem}")
        elif found is None:
            home = Namespace(workload.namespace)
            yield Subject(
                role, home, read_template(each.template, namespace=home, world=world, is_new=True), each.count
            )
        else:
            yield _subject(role, each, [pod for pod in of_it if _has_labels(pod, each)], document, world=world)


def _subject(title: str, pods: PodSet, there: Sequence[Json], document: Json, *, world: World) -> Subject:
    namespace = text(mapping(pods.template.get("metadata")).get("namespace"))
    alive = [pod for pod in there if not has_ended(pod)]
    wanted = _wanted(pods.count, document)
    waiting = [pod for pod in alive if not mapping(pod.get("spec")).get("nodeName")]
    summary = _pods_summary(wanted, alive, waiting)
    if wanted is not None and len(alive) >= wanted and alive:
        chosen = (waiting or alive)[0]
        name = text(mapping(chosen.get("metadata")).get("name"))
        return subject_of_pod(chosen, namespace=namespace, world=world, title=title, pods=f"{summary}. Pod {name}:")
    template = read_template(pods.template, namespace=Namespace(namespace), world=world, is_new=True)
    missing = None if wanted is None else wanted - len(alive)
    return Subject(title, Namespace(namespace), template, missing, pods=f"{summary}. The next one:")


def _wanted(count: int | None, document: Json) -> int | None:
    """Return how many pods should exist now; a Job wants at most its remaining completions."""
    spec, status = mapping(document.get("spec")), mapping(document.get("status"))
    completions, done = spec.get("completions"), status.get("succeeded")
    if document.get("kind") != "Job" or count is None or not isinstance(completions, int):
        return count
    return max(0, min(count, completions - (done if isinstance(done, int) else 0)))


def _pods_summary(wanted: int | None, alive: Sequence[Json], waiting: Sequence[Json]) -> str:
    tiers = Counter(text(mapping(mapping(pod.get("metadata")).get("labels")).get(keys.TIER)) for pod in alive)
    parts = [f"{len(alive) - len(waiting)} on nodes", f"{len(waiting)} on none yet"]
    parts += [f"{count} {tier}" for tier, count in sorted(tiers.items()) if tier]
    of = "" if wanted is None else f" of {wanted}"
    return f"{plural(len(alive), 'pod') if not of else f'{len(alive)}{of} pods'} exist: {', '.join(parts)}"


def _has_labels(pod: Json, pods: PodSet) -> bool:
    """Whether a pod has all labels of a template, except those that Fairgate writes."""
    have = mapping(mapping(pod.get("metadata")).get("labels"))
    wanted = mapping(mapping(pods.template.get("metadata")).get("labels"))
    return all(have.get(key) == value for key, value in wanted.items() if key not in keys.GUARDED_LABELS)


def _is_made_by(pod: Json, workload: Workload) -> bool:
    """Whether a pod's controller is the workload, or has a name that begins with the workload's."""
    controller = _controller(pod)
    kind, name = text(controller.get("kind")), text(controller.get("name"))
    if kind == workload.kind:
        return name == workload.name
    if kind == "ReplicaSet" and workload.kind == "Deployment":
        labels = mapping(mapping(pod.get("metadata")).get("labels"))
        return name == f"{workload.name}-{text(labels.get(_TEMPLATE_HASH))}"
    return name == workload.name or name.startswith(f"{workload.name}-")


def _controller(pod: Json) -> Json:
    owners: Iterable[Any] = listed(mapping(pod.get("metadata")).get("ownerReferences"))
    return next((mapping(owner) for owner in owners if mapping(owner).get("controller") is True), {})
