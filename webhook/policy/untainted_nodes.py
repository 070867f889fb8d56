"""GPU nodes that pods without GPUs can fill: nodes without a taint, and the command that taints them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.node import Node
from webhook.core.model.policy import Policy, Pool
from webhook.core.model.selector import HELD, Effect, Taint, Toleration
from webhook.core.world.world import World

_CLOSING: Final = frozenset({Effect.NO_SCHEDULE, Effect.NO_EXECUTE})
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that Kubernetes sets by itself for as long as something is wrong with a node."""
_LISTED: Final = 5
_NVIDIA: Final = "nvidia.com"


class _Remedy(NamedTuple):
    """The taint to set, as kubectl takes it, and whether a pool tolerates it already."""

    taint: str
    is_tolerated: bool


def untainted(policy: Policy, world: World) -> Iterator[str]:
    """Say which GPU nodes let in every pod, and how to keep pods without GPUs off them."""
    nodes = sorted(world.fleet.nodes(), key=lambda node: node.name)
    found: dict[_Remedy, list[Node]] = defaultdict(list)
    for node in nodes:
        if any(node.offers(policy.resources)) and not any(map(_closes, node.taints)):
            found[_remedy(node, policy)].append(node)
    for remedy, open_nodes in sorted(found.items()):
        named = ", ".join(node.name for node in open_nodes[:_LISTED])
        named += f" and {len(open_nodes) - _LISTED} more" if len(open_nodes) > _LISTED else ""
        first = "" if remedy.is_tolerated else f"let their pool tolerate {_key(remedy.taint)}, then "
        yield (
            f"nodes with GPUs and no taint, whose cpu and memory pods without GPUs can fill: {named}; "
            f"{first}kubectl taint nodes {_selected(open_nodes, nodes)} {remedy.taint}"
        )


def _closes(taint: Taint) -> bool:
    return taint.effect in _CLOSING and taint.key != HELD and not taint.key.startswith(_PASSING)


def _remedy(node: Node, policy: Policy) -> _Remedy:
    """Choose the taint that a pool of the node tolerates; else one that is named as the vendor's GPUs are.

    What runs on every GPU node, such as NVIDIA's device plugin, tolerates that key.
    """
    for pool in policy.pools:
        if has(pool, node):
            for toleration in pool.tolerations:
                if toleration.key and toleration.effect in (None, Effect.NO_SCHEDULE):
                    return _Remedy(_written(toleration), is_tolerated=True)
    resource = min(offer.resource for offer in node.offers(policy.resources))
    key = DEVICE if _NVIDIA in resource else resource
    return _Remedy(f"{key}=present:{Effect.NO_SCHEDULE}", is_tolerated=False)


def _written(toleration: Toleration) -> str:
    value = toleration.value or ("present" if toleration.exists else "")
    return f"{toleration.key}={value}:{Effect.NO_SCHEDULE}"


def _key(taint: str) -> str:
    return taint.partition("=")[0]


def _selected(wanted: Sequence[Node], nodes: Sequence[Node]) -> str:
    """Name nodes for kubectl: by a label that they and no others have, or one by one."""
    names = {node.name for node in wanted}
    if len(wanted) > _LISTED:
        shared = set(wanted[0].labels.items()).intersection(*(node.labels.items() for node in wanted[1:]))
        for node in nodes:
            if node.name not in names:
                shared -= node.labels.items()
        if shared:
            key, value = min(shared)
            return f"-l {key}={value}"
    return " ".join(node.name for node in wanted)


def has(pool: Pool, node: Node) -> bool:
    """Tell whether a node is in a pool, whatever its taints."""
    return all(node.labels.get(key) == value for key, value in pool.node_selector) and all(
        requirement.matches(node.labels) for requirement in pool.affinity
    )
