"""Nodes of ample capacity for a world without nodes, such as that of `--empty`, so that only limits decide."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from webhook.core.admission.pools import allowed_pools
from webhook.core.model.names import NodeName
from webhook.core.model.pod import Pod
from webhook.core.model.selector import Constraints, Operator, Requirement
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import to_node
from webhook.kube.objects import objects

_AMPLE: Final = 1_000_000_000
_PODS: Final = 1_000
"""How many pods of any size fit on an ample node: memory is counted in bytes."""


class AmpleNodes:
    """Adds an ample node for each pod in each pool that it may use, and removes those of the pods before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes: list[NodeName] = []

    def make_room(self, *pods: Pod) -> None:
        """Replace the ample nodes by nodes on which these pods fit, all in one domain of each kind."""
        for name in self._nodes:
            self._world.remove_node(name)
        self._nodes = []
        domains = [pod.gang.domain.key for pod in pods if pod.gang is not None and pod.gang.domain is not None]
        labels = dict.fromkeys(filter(None, domains), "any")
        for pod in pods:
            for pool in allowed_pools(pod, self._world.tenancy(pod.namespace).team_name, self._world).allowed:
                constraints = self._world.pools.joined(pod.constraints, pool)
                found = _node(f"any-{len(self._nodes)}", pod, constraints, labels)
                node = to_node(msgspec.convert(found, objects.Node))
                self._world.set_node(node)
                self._nodes.append(node.name)


def _node(name: str, pod: Pod, constraints: Constraints, domains: Mapping[str, str]) -> dict[str, object]:
    term = next((term for term in constraints.terms or () if term.labels or term.fields), None)
    labels = {**domains, **dict(constraints.node_selector)}
    if term is not None:
        labels |= _met(term.labels)
        name = dict(_met(term.fields)).get("metadata.name", name)
    amounts = {resource: str(max(_AMPLE, _PODS * requested)) for resource, requested in pod.demand.requests}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def _met(requirements: tuple[Requirement, ...]) -> Iterator[tuple[str, str]]:
    """Yield a label for each requirement that can be met by a label."""
    for requirement in requirements:
        match requirement.operator:
            case Operator.IN if requirement.values:
                yield requirement.key, requirement.values[0]
            case Operator.EXISTS:
                yield requirement.key, ""
            case Operator.GT | Operator.LT if requirement.values and requirement.values[0].lstrip("-").isdecimal():
                step = 1 if requirement.operator is Operator.GT else -1
                yield requirement.key, str(int(requirement.values[0]) + step)
