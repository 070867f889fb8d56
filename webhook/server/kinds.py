"""Everything that a cluster's world is made of, as the watches feed it."""

from collections.abc import Callable
from typing import Any

from webhook.cluster.watch.dra_kinds import device_kinds
from webhook.cluster.watch.feed import PodSink
from webhook.cluster.watch.kinds import namespace_kind, node_kind, pod_kind, priority_class_kind
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Uid
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import to_namespace, to_node, to_priority
from webhook.kube.objects import objects
from webhook.kube.pod.existing_pods import to_resident
from webhook.kube.pod.pod_recovery import recovered_pod


def world_kinds(
    world: World, *, pods: PodSink, lose: Callable[[Uid], None] | None = None
) -> tuple[WatchedKind[Any], ...]:
    """Feed a world; its pods go through `pods`, which may be the world itself. `lose` as in pod_kind."""
    return (
        node_kind(world, objects.Node, to_node),
        namespace_kind(world, objects.Namespace, to_namespace),
        priority_class_kind(world, objects.PriorityClass, to_priority),
        *device_kinds(world),
        pod_kind(
            pods, objects.Pod, lambda pod: to_resident(pod, world.policy.resources), lose=lose, salvage=recovered_pod
        ),
    )
