"""A workload of the cluster: its pods, and the one to explain: the next, one that waits, or one that runs.

Its pods are known by the labels of its template and by their controller, which is the workload or carries its name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.cli.explain.subjects import Subject, has_ended, pods_in, subject_of_pod
from webhook.cli.formatting import plural
from webhook.core.model.names import Namespace
from webhook.core.world.world import World
from webhook.kube.kinds.kind_row import KindTable
from webhook.kube.kinds.model import Json, PodSet, Unknown, Workload, listed, mapping, text
from webhook.kube.objects import keys
from webhook.kube.workloads.expand import expand
from webhook.simulation.simulate import read_template

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
            yield Subject(role, home, read_template(each.template, namespace=home, world=world), each.count)
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
    template = read_template(pods.template, namespace=Namespace(namespace), world=world)
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
