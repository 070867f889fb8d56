"""Which pods can be judged by the utilization of their GPUs, and by how many series."""

from collections.abc import Iterable, Iterator
from typing import Final

from webhook.core.idle.idle_clock import Candidate
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.mig_slices import slice_of
from webhook.core.model.names import ResourceName
from webhook.core.model.node import Node
from webhook.core.model.replicas import replicas_by
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.shared_devices import Sharing
from webhook.core.world.world import World

SHARES: Final = "it shares a GPU: exporters cannot tell whose use they show"
"""Why some pods are never idle."""

_MIG: Final = "nvidia.com/mig-"
_SHARED: Final = ".shared"
_REPLICA_SET: Final = "ReplicaSet"


def candidates(gpu_pods: Iterable[ReclaimPod], world: World) -> Iterator[Candidate]:
    """Yield the pods on nodes whose teams' idle GPUs have consequences."""
    rules, sharing = world.policy.idle, Sharing(world)
    if rules is None:
        return
    for gpu_pod in gpu_pods:
        pod, team = gpu_pod.pod, world.policy.team(gpu_pod.team)
        if pod.node is None or pod.is_terminating or not pod.demand.gpus or not world.policy.on_idle(gpu_pod.team):
            continue
        yield Candidate(
            uid=pod.uid,
            key=(pod.namespace, pod.name),
            team=gpu_pod.team,
            workload=workload_of(gpu_pod),
            gpus=pod.demand.gpus,
            devices=sum(amount for _, amount in pod.demand.held),
            terms=rules.terms_of(None if team is None else team.idle),
            gang=gpu_pod.goes_with,
            has_parts=_has_parts(gpu_pod, world.fleet.get(pod.node)),
            cannot_judge="policy exempts it"
            if rules.exempts(pod.namespace, gpu_pod.labels)
            else why_shared(gpu_pod, world, sharing),
            started_at=gpu_pod.runs_since,
            saved_at=gpu_pod.saved_at,
            idle_since=pod.idle_since,
            is_starting=gpu_pod.is_starting,
        )


def why_shared(gpu_pod: ReclaimPod, world: World, sharing: Sharing) -> str:
    """Return why the utilization of a pod's GPUs says nothing about the pod; "" where it does."""
    pod = gpu_pod.pod
    node = None if pod.node is None else world.fleet.get(pod.node)
    demand = pod.demand
    is_part_of_device = demand.per_device is not None or demand.counted is not None or bool(pod.devices)
    names = [name for name, _ in demand.held]
    if is_part_of_device or any(_is_shared(name, world) for name in names) or sharing.others(pod.uid):
        return SHARES
    if node is not None and replicas_by(node.labels) > 1:
        return SHARES
    return "" if names else "it has no devices of its own"


def workload_of(gpu_pod: ReclaimPod) -> str:
    """Return a name of what made a pod that stays the same where that is created again, or rolled out."""
    controller = gpu_pod.controller
    kind, name = ("Pod", gpu_pod.name) if controller is None else (controller.kind, controller.name)
    if kind == _REPLICA_SET:  # of a Deployment, with the hash of its template
        name = name.rpartition("-")[0] or name
    return f"{gpu_pod.namespace}/{kind}/{name}"


def _has_parts(gpu_pod: ReclaimPod, node: Node | None) -> bool:
    names = [name for name, _ in gpu_pod.demand.held]
    is_sliced = node is not None and slice_of(node.model) is not None
    return is_sliced or any(name.startswith(_MIG) for name in names)


def _is_shared(name: ResourceName, world: World) -> bool:
    weight = world.policy.resources.get(name, ONE_GPU)
    return name.endswith(_SHARED) or (weight < ONE_GPU and not name.startswith(_MIG))
