"""A stand-in for kube-scheduler: the node of a pod that the webhook admitted without room, or that asks for no GPU.

Pods that the webhook placed go to its first choice, as kube-scheduler does. For the others the room, the constraints
and the taints decide; of several nodes the one with the largest free part of cpu and memory is taken, as by its score
LeastAllocated, of equals the first by name.
"""

from typing import Final, NamedTuple

from webhook.core.model.decision import NodeChoice
from webhook.core.model.names import CPU, MEMORY, NodeName
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Mode
from webhook.core.model.selector import HELD as HELD_TAINT
from webhook.core.model.selector import NODE_NAME_FIELD, Constraints, NodeTerm, Operator, Requirement, Toleration
from webhook.core.placement.fleet import Fleet

_NAMING: Final = frozenset({Mode.AUTO, Mode.REQUIRE})
_SCORE: Final = 100


def patched_constraints(pod: Pod, choice: NodeChoice) -> Constraints:
    """Return the constraints of a pod once the webhook has written its choice: both hold."""
    joined = pod.constraints.joined(node_selector=choice.node_selector, tolerations=choice.tolerations)
    nodes = choice.nodes if choice.mode in _NAMING else ()
    if not (choice.pool_terms or nodes):
        return joined
    own = (NodeTerm(),) if joined.terms is None else tuple(term for term in joined.terms if not term.is_empty)
    named: list[tuple[Requirement, ...]] = [(Requirement(NODE_NAME_FIELD, Operator.IN, (node,)),) for node in nodes]
    terms = tuple(
        NodeTerm(term.labels + pool, term.fields + fields)
        for term in own
        for pool in choice.pool_terms or ((),)
        for fields in named or [()]
    )
    return Constraints(joined.node_selector, terms, joined.tolerations, joined.volumes)


def with_hold(constraints: Constraints, hold: str) -> Constraints:
    """Return the constraints of a pod that may use the room of a hold."""
    return constraints.joined(tolerations=(Toleration(HELD_TAINT, value=hold),))


class Binding(NamedTuple):
    """The node of a pod, and whether kube-scheduler could have chosen another one."""

    node: NodeName
    is_free_choice: bool


def binding_for(pod: Pod, constraints: Constraints, fleet: Fleet) -> Binding | None:
    """Return the node where kube-scheduler binds a pod now; None where none has room."""
    room = fleet.with_room(pod.demand, fleet.matching(constraints) & fleet.open_bits)
    if not room:
        return None
    names = fleet.names_of(room)
    if len(names) == 1:
        return Binding(names[0], is_free_choice=False)
    return Binding(min(names, key=lambda name: (-_free_part(name, pod, fleet), name)), is_free_choice=True)


def _free_part(name: NodeName, pod: Pod, fleet: Fleet) -> int:
    """Return the free part of cpu and memory with the pod on the node, in hundredths, rounded down for each."""
    node = fleet.get(name)
    asked = dict(pod.demand.requests)
    total = 0
    for resource in (CPU, MEMORY):
        size = 0 if node is None else node.allocatable.get(resource, 0)
        if size:
            total += max(0, fleet.free(name, resource) - asked.get(resource, 0)) * _SCORE // size
    return total // 2
