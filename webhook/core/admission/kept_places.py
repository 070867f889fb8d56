"""The place that a node keeps for a pod: it is sent there, and no other pod is (core/model/kept_place.py)."""

from typing import NamedTuple

from webhook.core.model.kept_place import controller_key
from webhook.core.model.pod import Pod
from webhook.core.model.selector import HELD, Toleration
from webhook.core.world.world import World


class OwnPlace(NamedTuple):
    """A pod as one that tolerates the hold of its node, as the evictor will have it, and that node's slot."""

    pod: Pod
    slot: int


def own_place(pod: Pod, world: World) -> OwnPlace | None:
    """Return the place that is kept for a pod, where there is room for it now; None where there is none."""
    keys: set[str] = {pod.uid} if pod.uid else set()
    if pod.owner is not None:
        keys.add(controller_key(pod.owner.kind, pod.namespace, pod.owner.name))
    for node in filter(None, map(world.fleet.get, sorted(world.keeping))):
        if not any(place.key in keys and place.has_room_for(pod.demand) for place in node.kept):
            continue
        holds = tuple([Toleration(HELD, value=taint.value) for taint in node.taints if taint.key == HELD])
        if world.fleet.fits(node.name, pod.demand):
            constraints = pod.constraints.joined(tolerations=holds)
            return OwnPlace(pod._replace(constraints=constraints), world.fleet.bit(node.name))
    return None
