"""What is said of nodes that an operator changes: they take no new pods meanwhile, and offer something else then."""

from collections.abc import Iterator

from webhook.core.model.statement import Statement
from webhook.core.world.world import World


def of_unknown_devices(world: World) -> int:
    """Return the nodes in maintenance of which it is not known what they had: they may come to offer anything."""
    fleet, weights, found = world.fleet, world.policy.resources, 0
    for name in world.absent_nodes.maintained:
        node = fleet.get(name) if world.absent_nodes.get(name) is None else None
        if node is not None and not any(node.recovered.offers(weights)):
            found |= fleet.bit(name)
    return found


def maintenance(slots: int, world: World) -> Statement:
    """Return what is changed on the first of some nodes, all of which an operator changes."""
    name, more = world.fleet.names_of(slots & -slots)[0], slots.bit_count() - 1
    words = (
        "node {node} takes no new pods while its {what}, nor {nodes:other node} in maintenance"
        if more
        else "node {node} takes no new pods while its {what}"
    )
    return Statement(words, {"node": name, "what": world.absent_nodes.maintained[name].value, "nodes": more})


def maintenance_texts(world: World) -> Iterator[str]:
    """Yield what is changed on each node, by name."""
    for name, what in sorted(world.absent_nodes.maintained.items()):
        yield f"{name} (its {what})"
