"""Finds GPU nodes without a taint, which pods without GPUs can fill, and the command that taints them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.node import Node
from webhook.core.model.policy import Policy, Pool
from webhook.core.model.selector import HELD, Effect, Taint, Toleration
from webhook.core.world.world import World

_REPELLING: Final = frozenset({Effect.NO_SCHEDULE, Effect.NO_EXECUTE})
_TRANSIENT: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that Kubernetes sets while a node has a problem."""
_MAX_LISTED: Final = 5
_MAX_NAMED: Final = 20
_NVIDIA: Final = "nvidia.com"


class _Remedy(NamedTuple):
    """The taint to set, in kubectl's syntax, and whether a pool tolerates it already."""

    taint: str
    is_tolerated: bool


def untainted(policy: Policy, world: World) -> Iterator[str]:
    """Yield a message for GPU nodes that repel no pod, with the command that keeps pods without GPUs off them."""
    nodes = sorted(world.fleet.nodes(), key=lambda node: node.name)
    found: dict[_Remedy, list[Node]] = defaultdict(list)
    for node in nodes:
        if any(node.offers(policy.resources)) and not any(map(_repels, node.taints)):
            found[_remedy(node, policy)].append(node)
    for remedy, open_nodes in sorted(found.items()):
        named = ", ".join(node.name for node in open_nodes[:_MAX_LISTED])
        named += f" and {len(open_nodes) - _MAX_LISTED} more" if len(open_nodes) > _MAX_LISTED else ""
        first = "" if remedy.is_tolerated else f"add a toleration of {_key(remedy.taint)} to their pool, then "
        selected = _selected(open_nodes, nodes)
        each = "" if selected else "for each of them "
        yield (
            f"GPU nodes without a taint, on which pods without GPUs can use up cpu and memory: {named}; "
            f"{first}{each}kubectl taint nodes {selected or 'NODE'} {remedy.taint}"
        )


def _repels(taint: Taint) -> bool:
    return taint.effect in _REPELLING and taint.key != HELD and not taint.key.startswith(_TRANSIENT)


def _remedy(node: Node, policy: Policy) -> _Remedy:
    """Return a taint that a pool of the node tolerates, otherwise one named after the vendor's GPU resource.

    Vendor DaemonSets on GPU nodes, such as NVIDIA's device plugin, tolerate that key.
    """
    for pool in policy.pools:
        if contains_node(pool, node):
            for toleration in pool.tolerations:
                if toleration.key and toleration.effect in (None, Effect.NO_SCHEDULE):
                    return _Remedy(_taint_text(toleration), is_tolerated=True)
    resource = min(offer.resource for offer in node.offers(policy.resources))
    key = DEVICE if _NVIDIA in resource else resource
    return _Remedy(f"{key}=present:{Effect.NO_SCHEDULE}", is_tolerated=False)


def _taint_text(toleration: Toleration) -> str:
    value = toleration.value or ("present" if toleration.exists else "")
    return f"{toleration.key}={value}:{Effect.NO_SCHEDULE}"


def _key(taint: str) -> str:
    return taint.partition("=")[0]


def _selected(wanted: Sequence[Node], nodes: Sequence[Node]) -> str:
    """Return kubectl's arguments for these nodes: a label that only they have, or names; "" where these are many."""
    names = {node.name for node in wanted}
    if len(wanted) > _MAX_LISTED:
        shared = set(wanted[0].labels.items()).intersection(*(node.labels.items() for node in wanted[1:]))
        for node in nodes:
            if node.name not in names:
                shared -= node.labels.items()
        if shared:
            key, value = min(shared)
            return f"-l {key}={value}"
    if len(wanted) <= _MAX_NAMED:
        return " ".join(node.name for node in wanted)
    return _by_values(wanted, [node for node in nodes if node.name not in names])


def _by_values(wanted: Sequence[Node], others: Sequence[Node]) -> str:
    """Return an argument with a label of which only these nodes have some few values; "" where there is none."""
    for key in sorted(set(wanted[0].labels).intersection(*(node.labels for node in wanted[1:]))):
        values = {node.labels[key] for node in wanted}
        if len(values) <= _MAX_LISTED and not any(node.labels.get(key) in values for node in others):
            return f"-l '{key} in ({','.join(sorted(values))})'"
    return ""


def contains_node(pool: Pool, node: Node) -> bool:
    """Whether a node is in a pool, regardless of its taints."""
    return all(node.labels.get(key) == value for key, value in pool.node_selector) and all(
        requirement.matches(node.labels) for requirement in pool.affinity
    )
