"""What the plan of moves reads of a world: the pods that wait, those that may move, and why the others stay."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.cli.explain.beside import ClusterDetails, DetailsRequest, read_details
from webhook.cli.explain.reclaim import Evictions, node_holds_of
from webhook.cli.world_source import Objects, Source, WorldError, WorldObjects, world_of
from webhook.core.defragment.defragment import Movement
from webhook.core.defragment.movable_pod import Stays, movable_pods
from webhook.core.defragment.move_plan import Target
from webhook.core.defragment.waiting_targets import target_in_line, target_of_scheduler
from webhook.core.model.names import Namespace, Uid
from webhook.core.model.original_request import as_asked
from webhook.core.model.pod import NO_UID, Pod
from webhook.core.model.policy import Policy
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.world.world import World
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.server.settings import LiveCluster
from webhook.simulation.simulate import Template, read_template

_NOT_IN_FILES: Final = "a world file has no Jobs: none was looked at"


@dataclass(frozen=True, slots=True)
class Fragmented:
    """The input of a plan, how many pods on nodes stay for each reason, and what could not be read."""

    world: World
    targets: tuple[Target, ...]
    movement: Movement
    stays: Mapping[Stays, int]
    notes: tuple[str, ...]


def read_fragmented(
    found: WorldObjects, policy: Policy, details: ClusterDetails, *, name: str, now: int, per_workload: int
) -> Fragmented:
    """Return what a plan is made from. Raises WorldError where not all nodes and pods may be listed."""
    if not found.coverage.has_names:
        raise WorldError(f"moves are planned from all nodes and pods: {'; '.join(found.coverage.notes())}")
    evictions = Evictions.of(found.objects, world_of(found, policy, name=name), details, ())
    movement, stays = read_movement(found.objects, evictions, now=now, per_workload=per_workload)
    world, held = evictions.world, evictions.held
    holds = node_holds_of(found.objects)
    served = {each.uid for hold in holds for each in hold.beneficiaries}
    served |= {Uid(place.key) for hold in holds for place in hold.places}
    targets: list[Target | None] = [
        target_in_line(each, world, held=held) for each in world.waiting.all() if each.uid not in served
    ]
    for written, gpu_pod in _pods(found.objects, evictions):
        if gpu_pod.pod.node is None and gpu_pod.uid not in served:
            template = _template(written, gpu_pod, world)
            targets.append(None if template is None else target_of_scheduler(gpu_pod, template, world, held=held))
    return Fragmented(world, tuple(filter(None, targets)), movement, stays, details.notes)


def read_movement(
    objects: Objects, evictions: Evictions, *, now: int, per_workload: int
) -> tuple[Movement, Mapping[Stays, int]]:
    """Return what moves are possible in a world, and how many pods on nodes stay for each reason."""
    world, index = evictions.world, evictions.reclaim_index
    written = {gpu_pod.uid: found for found, gpu_pod in _pods(objects, evictions)}
    gpu_pods = [each for each in index.on_nodes() if each.uid in written and not each.pod.is_terminating]
    found = movable_pods(
        gpu_pods, lambda each: _template(written[each.uid], each, world), index, world, now=now, held=evictions.held
    )
    policy = world.policy
    movement = Movement(
        fleet=world.fleet,
        movable=found.pods,
        now=now,
        left=found.left,
        weights=policy.resources,
        per_workload=per_workload,
        levels=policy.topology.levels,
        held=evictions.held,
    )
    return movement, found.stays


def details_of(source: Source) -> ClusterDetails:
    """Return the disruption budgets and the failure budgets of the cluster, and what could not be read."""
    if not isinstance(source, LiveCluster):
        return ClusterDetails(notes=(_NOT_IN_FILES,))
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415 - slow to import, and files need none of it

    try:
        return read_details(source.kubeconfig, DetailsRequest(None, "", OWN_NAMESPACE, reads_failures=True))
    except ClusterError as error:
        raise WorldError(str(error)) from error


def _pods(objects: Objects, evictions: Evictions) -> Iterator[tuple[Mapping[str, Any], ReclaimPod]]:
    """Yield the pods that hold GPUs or wait for some, as they are written and as reclaim reads them."""
    residents = {(pod.namespace, pod.name): pod.uid for pod in evictions.world.pods()}
    for each in objects:
        if each.get("kind") == "Pod":
            metadata = mapping(each.get("metadata"))
            key = Namespace(text(metadata.get("namespace")) or "default"), text(metadata.get("name"))
            gpu_pod = evictions.reclaim_index.get(residents.get(key, NO_UID))
            if gpu_pod is not None:
                yield each, gpu_pod


def _template(written: Mapping[str, Any], gpu_pod: ReclaimPod, world: World) -> Pod | None:
    """Return a pod as its controller would create it now; None where it cannot be read."""
    found = read_template(written, namespace=gpu_pod.namespace, world=world)
    return as_asked(found.pod, world.policy) if isinstance(found, Template) else None
