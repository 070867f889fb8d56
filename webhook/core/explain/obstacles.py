"""Everything that excludes one node for a pod, each with what is requested and what the node has. Pure.

`candidates` reports the first cause for every node, this module all causes for one; and the pods whose required
anti-affinity excludes nodes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.explain.candidates import topology_obstacle
from webhook.core.model.demand import Demand
from webhook.core.model.names import CPU, HOST_PORT, MEMORY, Namespace, ResourceName
from webhook.core.model.node import Node
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.selector import HELD, Constraints, Effect, NodeTerm, Operator, Requirement, Taint
from webhook.core.model.text import plural, printable
from webhook.core.peers.topology_filter import TopologyFilter
from webhook.core.placement.fleet import Fleet
from webhook.core.world.world import World

_GIB = 1 << 30


def obstacles(
    fleet: Fleet, node: Node, demand: Demand, constraints: Constraints, *, spread: TopologyFilter
) -> tuple[str, ...]:
    """Return what excludes a node for a pod; empty if the node could take it now.

    `constraints` are the pod's own and those of the pool.
    """
    reasons = [*_closed(node), *_unmet(node, constraints), *_lacking(fleet, node, demand)]
    if not fleet.labels.reached(constraints) & fleet.bit(node.name):
        reasons.append("a bound volume of the pod is not usable there")
    if not reasons and demand.per_device is not None and not fleet.with_room(demand, fleet.bit(node.name)):
        reasons.append("no single GPU of it has as much free as the pod asks for")
    topology = topology_obstacle(spread, fleet.bit(node.name))
    return (*reasons, topology) if topology is not None else tuple(reasons)


class Excluder(NamedTuple):
    """A pod whose required anti-affinity keeps another off the nodes of its domain of a topology key."""

    namespace: Namespace
    name: str
    key: str
    nodes: int

    @property
    def text(self) -> str:
        """The text for people: which pod, by which key, and off how many nodes."""
        return f"pod {self.namespace}/{printable(self.name)} (topology key {self.key}: {plural(self.nodes, 'node')})"


def excluders(pod: Pod | Resident, world: World) -> tuple[Excluder, ...]:
    """Return the known pods whose required anti-affinity excludes nodes for a pod, those of the most nodes first."""
    fleet, found = world.fleet, []
    for other in world.pods():
        if not other.anti_affinity_rules or other.node is None or other.is_terminating or _is_same(pod, other):
            continue
        bit = fleet.bit(other.node)
        for rule in other.anti_affinity_rules:
            domains = fleet.domains(rule.keys[0])
            value = domains.value(bit.bit_length() - 1)
            if value is not None and world.pod_counts.applies(rule, pod.namespace, pod.labels, home=other.namespace):
                number = domains.members[value].bit_count()
                found.append(Excluder(other.namespace, other.name, rule.keys[0], number))
    return tuple(sorted(set(found), key=lambda each: (-each.nodes, each)))


def _is_same(pod: Pod | Resident, other: Resident) -> bool:
    return isinstance(pod, Resident) and pod.uid == other.uid


def _closed(node: Node) -> Iterator[str]:
    if not node.is_ready:
        yield "it is not ready"
    if node.maintenance is not None:
        yield f"its {node.maintenance}"
    if node.is_cordoned:
        yield "it is cordoned"


def _unmet(node: Node, constraints: Constraints) -> Iterator[str]:
    for key, wanted in constraints.node_selector:
        if node.labels.get(key) != wanted:
            yield f"the node selector asks for {key}: {wanted}, {_label(node, key)}"
    terms = constraints.terms
    if terms is not None and not any(term.matches(node.name, node.labels) for term in terms):
        if len(terms) == 1:
            yield from (
                f"the node affinity asks for {_requested(each)}, {_has(node, each)}" for each in _broken(terms[0], node)
            )
        else:
            yield f"the node affinity has {len(terms)} terms, and it meets none of them"
    for taint in node.taints:
        if taint.effect is not Effect.PREFER_NO_SCHEDULE and not any(
            t.tolerates(taint) for t in constraints.tolerations
        ):
            yield (
                "its room is held for waiting pods"
                if taint.key == HELD
                else f"it has taint {_taint(taint)}, which the pod does not tolerate"
            )


def _broken(term: NodeTerm, node: Node) -> Iterator[Requirement]:
    for each in term.labels:
        if not each.matches(node.labels):
            yield each
    for each in term.fields:
        if not each.matches({each.key: node.name}):
            yield each


def _requested(requirement: Requirement) -> str:
    values = ", ".join(requirement.values)
    match requirement.operator:
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return f"{requirement.key} {requirement.operator}"
        case _:
            return f"{requirement.key} {requirement.operator} {values}"


def _has(node: Node, requirement: Requirement) -> str:
    return f"its name is {node.name}" if requirement.key == "metadata.name" else _label(node, requirement.key)


def _label(node: Node, key: str) -> str:
    value = node.labels.get(key)
    return f"the node has no label {key}" if value is None else f"the node has {value}"


def _taint(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _lacking(fleet: Fleet, node: Node, demand: Demand) -> Iterator[str]:
    for resource, requested in demand.requests:
        offered, free = node.allocatable.get(resource, 0), fleet.free(node.name, resource)
        whole = node.amount_at_best(resource)
        if resource.startswith(HOST_PORT):
            if free < requested:
                yield f"{resource} is in use there"
            continue
        asks = f"the pod asks for {_amount(resource, requested)} {resource}"
        if offered < requested <= whole:
            yield f"{asks}, it offers {offered} of {whole} now"
        elif not offered:
            yield f"it offers no {resource}"
        elif requested > offered:
            yield f"{asks}, it has {_amount(resource, offered)} in all"
        elif requested > free:
            yield f"{asks}, {_amount(resource, max(0, free))} of {_amount(resource, offered)} are free"


def _amount(resource: ResourceName, amount: int) -> str:
    if resource == CPU:
        return f"{amount / 1000:g}"
    return f"{amount / _GIB:.3g} GiB of" if resource == MEMORY else str(amount)
