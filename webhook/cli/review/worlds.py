"""The world that a review judges against: from a file, from a live cluster that is only read, or empty."""

from dataclasses import dataclass

from webhook.cli.review.collect import Collected
from webhook.cli.review.imagined import without_nodes
from webhook.cli.review.judged import WorldFacts
from webhook.cli.worlds import Source, origin_of, read_once
from webhook.core.policy import Policy
from webhook.core.world import World


@dataclass(frozen=True, slots=True)
class Empty:
    """No nodes and no pods: the limits of policy, against nothing used."""


WorldSource = Source | Empty


def open_world(source: WorldSource, policy: Policy, collected: Collected) -> tuple[World, WorldFacts]:
    """Make the world, with the namespaces and PriorityClasses that the manifests bring. Raises WorldError."""
    if isinstance(source, Empty):
        brought = frozenset(brought.name for brought in collected.priority_classes)
        world = World(without_nodes(policy, priority_classes=brought))
        facts = WorldFacts("empty", "", None, 0, 0, policy.hash)
    else:
        origin, world = origin_of(source), read_once(source, policy)
        pods = sum(1 for _ in world.pods())
        facts = WorldFacts(origin.source, origin.name, origin.age_seconds, len(world.fleet), pods, policy.hash)
    _bring(collected, world)
    return world, facts


def _bring(collected: Collected, world: World) -> None:
    """Add what the manifests would create: new labels of a namespace come on top of those that it has."""
    for facts in collected.namespaces:
        known = world.tenancy(facts.name).facts
        world.set_namespace(
            type(facts)(facts.name, {**known.labels, **facts.labels}, {**known.annotations, **facts.annotations})
        )
    for triple in collected.priority_classes:
        world.set_priority_class(triple)
