"""What the plan of moves reads of a world: the pods that wait, those that may move, and why the others stay."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from webhook.cli.explain.beside import ClusterDetails, DetailsRequest, read_details
from webhook.cli.explain.reclaim import Evictions
from webhook.cli.world_source import Source, WorldError, WorldObjects, world_of
from webhook.core.defragment.defragment import Movement
from webhook.core.defragment.movable_pod import MovablePod, Stays, movable_pod
from webhook.core.defragment.move_plan import Target
from webhook.core.defragment.waiting_targets import target_in_line, target_of_scheduler
from webhook.core.model.names import Namespace
from webhook.core.model.original_request import as_asked
from webhook.core.model.pod import NO_UID
from webhook.core.model.policy import Policy
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.world.world import World
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.server.settings import LiveCluster
from webhook.simulation.simulate import Template, read_template


@dataclass(frozen=True, slots=True)
class Fragmented:
    """The input of a plan, how many pods on nodes stay for each reason, and what could not be read."""

    world: World
    targets: tuple[Target, ...]
    movement: Movement
    stays: Mapping[Stays, int]
    notes: tuple[str, ...]


def read_fragmented(
    found: WorldObjects, policy: Policy, source: Source, *, name: str, now: int, per_workload: int
) -> Fragmented:
    """Return what a plan is made from. Raises WorldError where not all nodes and pods may be listed."""
    if not found.coverage.has_names:
        raise WorldError(f"moves are planned from all nodes and pods: {'; '.join(found.coverage.notes())}")
    details = _details(source)
    world = world_of(found, policy, name=name)
    held = [node for node in world.fleet.nodes() if node.is_held]
    index = Evictions.of(found.objects, world, details, ()).reclaim_index
    for node in held:  # what is free there is for others
        world.set_node(node)
    targets: list[Target | None] = [target_in_line(each, world) for each in world.waiting.all()]
    movable: list[MovablePod] = []
    stays: Counter[Stays] = Counter()
    for gpu_pod, template in _pods(found, world, index):
        if gpu_pod.pod.node is None:
            targets.append(target_of_scheduler(gpu_pod, template.pod, world))
        elif not gpu_pod.pod.is_terminating:
            judged = movable_pod(gpu_pod, template.pod, index.evictable(gpu_pod), world, now=now)
            if isinstance(judged, Stays):
                stays[judged] += 1
            else:
                movable.append(judged)
    movement = Movement(
        fleet=world.fleet,
        movable=movable,
        now=now,
        left=index.allowances(),
        weights=policy.resources,
        per_workload=per_workload,
        levels=policy.topology.levels,
    )
    return Fragmented(world, tuple(filter(None, targets)), movement, stays, details.notes)


def _details(source: Source) -> ClusterDetails:
    """Return the disruption budgets of the cluster, and what could not be read."""
    if not isinstance(source, LiveCluster):
        return ClusterDetails(notes=("a world file has no PodDisruptionBudgets: none was looked at",))
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415 - slow to import, and files need none of it

    try:
        return read_details(source.kubeconfig, DetailsRequest(None, "", OWN_NAMESPACE))
    except ClusterError as error:
        raise WorldError(str(error)) from error


def _pods(found: WorldObjects, world: World, index: ReclaimIndex) -> Iterator[tuple[ReclaimPod, Template]]:
    """Yield the pods that hold GPUs or wait for some, each as its controller would create it now."""
    residents = {(pod.namespace, pod.name): pod.uid for pod in world.pods()}
    for each in found.objects:
        if each.get("kind") != "Pod":
            continue
        metadata = mapping(each.get("metadata"))
        namespace = Namespace(text(metadata.get("namespace")) or "default")
        gpu_pod = index.get(residents.get((namespace, text(metadata.get("name"))), NO_UID))
        template = None if gpu_pod is None else read_template(each, namespace=namespace, world=world)
        if gpu_pod is not None and isinstance(template, Template):
            yield gpu_pod, replace(template, pod=as_asked(template.pod, world.policy))
