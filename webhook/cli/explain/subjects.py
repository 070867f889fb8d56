"""What is to be explained: a pod of the world, or one pod of each role that a manifest describes. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.decision import Deny
from webhook.core.names import Namespace
from webhook.core.world import World
from webhook.kube import keys
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.model import Unknown, mapping, text
from webhook.kube.workloads.related import Related
from webhook.kube.workloads.table import kind_table
from webhook.server.foretell import Template, read_template

POD_PREFIXES: Final = ("pod/", "pods/", "po/")


@dataclass(frozen=True, slots=True)
class Existing:
    """What a pod that exists carries: where it is and what was decided when it came."""

    node: str
    tier: str
    mark: str | None


@dataclass(frozen=True, slots=True)
class Subject:
    """One pod to explain. `count` is how many like it there would be, None where nobody knows."""

    title: str
    template: Template | Deny
    count: int | None = 1
    existing: Existing | None = None


def pod_name(asked: str) -> str | None:
    """Read pod/NAME; None where it is something else."""
    return next((asked.removeprefix(prefix) for prefix in POD_PREFIXES if asked.startswith(prefix)), None)


def pod_of_world(found: Iterable[Mapping[str, Any]], name: str, *, namespace: str, world: World) -> Subject | None:
    """Find a pod of the world; None where it is not there."""
    for each in found:
        metadata = mapping(each.get("metadata"))
        if each.get("kind") != "Pod" or metadata.get("name") != name:
            continue
        if (text(metadata.get("namespace")) or "default") == namespace:
            labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
            existing = Existing(
                text(mapping(each.get("spec")).get("nodeName")),
                text(labels.get(keys.TIER)),
                annotations.get(keys.DECISION),
            )
            template = read_template(each, namespace=Namespace(namespace), world=world)
            return Subject(f"Pod {namespace}/{name}", template, existing=existing)
    return None


def pods_of_manifests(
    found: Iterable[Mapping[str, Any]], *, namespace: str, world: World
) -> Iterator[Subject | Unknown]:
    """Yield one pod of each role of each workload; Unknown where nobody knows the pods."""
    objects = list(found)
    kinds = kind_table(world.policy.workloads.kinds)
    related = Related.of(objects, namespace=namespace)
    for each in objects:
        workload = expand(each, kinds=kinds, related=related, namespace=namespace)
        if isinstance(workload, Unknown):
            yield workload
        if workload is None or isinstance(workload, Unknown):
            continue
        title = f"{workload.kind} {workload.namespace}/{workload.name}"
        for pods in workload.pod_sets:
            if not pods.template:
                yield Unknown(f"{title}: {pods.problem}")
                continue
            template = read_template(pods.template, namespace=Namespace(workload.namespace), world=world)
            role = f", role {pods.role}" if pods.role else ""
            yield Subject(f"{title}{role}", template, pods.count)
