"""A pod of a rolling update, and the pods from before the update that it waits behind."""

from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.pod import Pod
from webhook.core.world.world import World

_HASH: Final = "pod-template-hash"
"""The label by which a Deployment's ReplicaSets differ: its value ends their names."""
_REPLICA_SET: Final = "ReplicaSet"


class OldPods(NamedTuple):
    """The ReplicaSets of a pod's Deployment from before its update, and the GPUs that their pods hold."""

    replica_sets: tuple[str, ...]
    gpus: Units


def old_pods(pod: Pod, world: World) -> OldPods | None:
    """Return the pods that an update of a pod's Deployment replaces; None where there are none with GPUs."""
    suffix = f"-{pod.labels.get(_HASH, '')}"
    owner = pod.owner
    if owner is None or owner.kind != _REPLICA_SET or suffix == "-" or not owner.name.endswith(suffix):
        return None
    deployment = owner.name.removesuffix(suffix)
    held: dict[str, Units] = {}
    for other in world.pods():
        known = other.owner
        if known is None or known.kind != _REPLICA_SET or other.namespace != pod.namespace or known.name == owner.name:
            continue
        if known.name.rpartition("-")[0] == deployment and other.demand.gpus:
            held[known.name] = held.get(known.name, 0) + other.demand.gpus
    return OldPods(tuple(sorted(held)), sum(held.values())) if held else None
