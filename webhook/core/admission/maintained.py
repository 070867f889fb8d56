"""What is said of nodes that an operator changes: they take no new pods meanwhile, and offer something else then."""

from collections.abc import Iterator

from webhook.core.model.node import Node
from webhook.core.model.statement import Statement
from webhook.core.world.world import World


def maintained_among(slots: int, world: World) -> int:
    """Return those of some nodes that an operator changes."""
    return sum(bit for bit, _ in _among(slots, world))


def unmarked_among(slots: int, world: World) -> int:
    """Return those of them that kube-scheduler takes for nodes like others: neither cordoned nor unready."""
    return sum(bit for bit, node in _among(slots, world) if node.is_ready and not node.is_cordoned)


def of_unknown_devices(slots: int, world: World) -> int:
    """Return those of them of which it is not known what they had: they may come to offer anything."""
    weights, absent = world.policy.resources, world.absent_nodes
    found = ((bit, node) for bit, node in _among(slots, world) if absent.get(node.name) is None)
    return sum(bit for bit, node in found if not any(node.recovered.offers(weights)))


def maintenance(slots: int, world: World) -> Statement:
    """Return what is changed on the first of some nodes, all of which an operator changes."""
    name, more = world.fleet.names_of(slots & -slots)[0], slots.bit_count() - 1
    words = (
        "node {node} takes no new pods while its {what}, nor {nodes:other node} in maintenance"
        if more
        else "node {node} takes no new pods while its {what}"
    )
    return Statement(words, {"node": name, "what": world.maintained[name].value, "nodes": more})


def maintenance_texts(world: World) -> Iterator[str]:
    """Yield what is changed on each node, by name."""
    for name, what in sorted(world.maintained.items()):
        yield f"{name} (its {what})"


def _among(slots: int, world: World) -> Iterator[tuple[int, Node]]:
    for name in world.maintained:
        node, bit = world.fleet.get(name), world.fleet.bit(name) & slots
        if node is not None and bit:
            yield bit, node
