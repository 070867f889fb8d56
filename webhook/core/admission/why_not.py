"""Why a pod would not go to a node: every cause, the first one first, with what is asked and what the node has. Pure.

Causes in common are what a fold over nodes counts; their texts say the rest of one node.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from webhook.core.model.amounts import HOST_PORT
from webhook.core.model.constraints import HELD, NO_CONSTRAINTS, Constraints, Effect, NodeTerm, Operator, Requirement
from webhook.core.model.demand import Demand
from webhook.core.model.node import Node
from webhook.core.model.reasons import Resource, Statement, compared
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.rejecting_nodes import NOTHING_AVOIDED, AvoidedNodes
from webhook.core.placement.topology_rules import NO_SPREAD, TopologyFilter


class Cause(StrEnum):
    """What excludes nodes; others are texts with a label, a resource or the node's state."""

    HELD = "reserved for waiting pods"
    REJECTS = "rejected the team's last pods"
    UNUSED = "kube-scheduler finds no room for pods of the same controller"
    CONSTRAINTS = "selectors, affinity or taints"
    VOLUME = "a bound volume is not usable there"
    NEVER = "too small even when empty"
    LESSENED = "offers fewer devices now than it has"
    DEVICES = "no room on single GPUs"


class WhyNot(NamedTuple):
    """A cause, which nodes have in common, and what it is on this one."""

    cause: str
    statement: Statement

    @property
    def text(self) -> str:
        """The text for people, of this node."""
        return self.statement.text


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a pod asks of nodes; `constraints` are its own and those of its pool.

    `avoided` are the nodes that its team does not use, or takes last.
    """

    demand: Demand
    constraints: Constraints = NO_CONSTRAINTS
    spread: TopologyFilter = NO_SPREAD
    avoided: AvoidedNodes = NOTHING_AVOIDED


def why_not(node: Node, pod: NodeRequest, fleet: Fleet) -> Iterator[WhyNot]:
    """Yield what excludes a node for a pod; nothing if the node could take it now."""
    bit = fleet.bit(node.name)
    yield from _closed(node)
    if not fleet.labels.reached(pod.constraints) & bit:
        yield WhyNot(Cause.VOLUME, Statement("a bound volume of the pod is not usable there"))
    for words in _unmet(node, pod.constraints):
        yield WhyNot(Cause.CONSTRAINTS, words)
    yield from _taints(node, pod.constraints)
    yield from _too_small(node, pod.demand, fleet)
    if pod.avoided.closed & bit:
        cause = Cause.UNUSED if pod.avoided.unused & bit else Cause.REJECTS
        yield WhyNot(cause, Statement("{cause}", {"cause": cause.value}))
    yield from _peers(pod.spread, bit)
    yield from _in_use(node, pod.demand, fleet)


def _closed(node: Node) -> Iterator[WhyNot]:
    if not node.is_ready:
        yield WhyNot("not ready", Statement("it is not ready"))
    if node.maintenance is not None:
        yield WhyNot(node.maintenance, Statement("its {what}", {"what": node.maintenance.value}))
    if node.is_cordoned:
        yield WhyNot("cordoned", Statement("it is cordoned"))


def _unmet(node: Node, constraints: Constraints) -> Iterator[Statement]:
    for key, wanted in constraints.node_selector:
        if node.labels.get(key) != wanted:
            facts = {"key": key, "wanted": wanted, "has": _label(node, key)}
            yield Statement("the node selector asks for {key}: {wanted}, {has}", facts)
    terms = constraints.terms
    if terms is not None and not any(term.matches(node.name, node.labels) for term in terms):
        if len(terms) == 1:
            for each in _broken(terms[0], node):
                facts = {"wanted": _requested(each), "has": _has(node, each)}
                yield Statement("the node affinity asks for {wanted}, {has}", facts)
        else:
            yield Statement("the node affinity has {terms:term}, and it meets none of them", {"terms": len(terms)})


def _taints(node: Node, constraints: Constraints) -> Iterator[WhyNot]:
    """Yield the taints that the pod does not tolerate, that of a hold last: it ends by itself."""
    closed = [
        taint
        for taint in node.taints
        if taint.effect is not Effect.PREFER_NO_SCHEDULE
        and not any(each.tolerates(taint) for each in constraints.tolerations)
    ]
    for taint in closed:
        if taint.key != HELD:
            facts = {"taint": f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"}
            words = "it has taint {taint}, which the pod does not tolerate"
            yield WhyNot(Cause.CONSTRAINTS, Statement(words, facts))
    if any(taint.key == HELD for taint in closed):
        yield WhyNot(Cause.HELD, Statement("it is reserved for waiting pods"))


def _broken(term: NodeTerm, node: Node) -> Iterator[Requirement]:
    yield from (each for each in term.labels if not each.matches(node.labels))
    yield from (each for each in term.fields if not each.matches({each.key: node.name}))


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


def _too_small(node: Node, demand: Demand, fleet: Fleet) -> Iterator[WhyNot]:
    """Yield what the node would lack if it were empty, for good or for a while."""
    bit = fleet.bit(node.name)
    cause = Cause.LESSENED if fleet.could_hold(demand, bit) else Cause.NEVER
    is_named = False
    for resource, requested in demand.requests:
        offered, best = node.allocatable.get(resource, 0), node.amount_at_best(resource)
        if requested <= offered or resource.startswith(HOST_PORT):
            continue
        is_named = True
        if requested <= best:
            facts = {"asked": Resource(resource, requested), "now": offered, "best": best}
            yield WhyNot(cause, Statement("the pod asks for {asked}, the node offers {now} of {best} now", facts))
        elif not best:
            yield WhyNot(cause, Statement("the node has no {resource}", {"resource": resource}))
        else:
            asked, has = compared(resource, requested, best)
            words = "the pod asks for {asked}, the node has {has:bare}"
            yield WhyNot(cause, Statement(words, {"asked": asked, "has": has}))
    if not is_named and not fleet.with_capacity(demand, bit):
        yield WhyNot(cause, Statement("no single GPU of it is as large as the pod asks for"))


def _peers(spread: TopologyFilter, bit: int) -> Iterator[WhyNot]:
    """Yield the topology rule that excludes a node, if one does."""
    if (text := _topology(spread, bit)) is not None:
        yield WhyNot(text, Statement("{rule}", {"rule": text}))


def _topology(spread: TopologyFilter, bit: int) -> str | None:
    for each in spread.hard:
        if not each.domains.bits & bit:
            return f"no label {each.rule.key}, the topology key of a spread constraint"
        if not each.allowed & bit:
            return f"too many matching pods in its {each.rule.key}"
    broken = next((rule for rule in spread.affine if not rule.allowed & bit), None)
    if broken is None:
        return None
    where = ", ".join(broken.rule.keys)
    if not broken.rule.is_anti:
        return f"no pod of the pod's affinity in its {where}"
    which = "of the pod's anti-affinity" if broken.is_own else "with anti-affinity to the pod"
    return f"pods {which} in its {where}"


def _in_use(node: Node, demand: Demand, fleet: Fleet) -> Iterator[WhyNot]:
    """Yield what other pods use of the resources that the node has enough of."""
    bit = fleet.bit(node.name)
    short = False
    for resource, requested in demand.requests:
        offered, free = node.allocatable.get(resource, 0), fleet.free(node.name, resource)
        if free >= requested:
            continue
        short = True
        if resource.startswith(HOST_PORT):
            yield WhyNot(f"{resource} in use", Statement("{resource} is in use there", {"resource": resource}))
        elif requested <= offered:
            asked, left = compared(resource, requested, max(0, free))
            facts = {"asked": asked, "free": left, "of": Resource(resource, offered)}
            words = "the pod asks for {asked}, {free:bare} of {of:bare} are free"
            yield WhyNot(f"too little {resource} free", Statement(words, facts))
    if not short and fleet.with_capacity(demand, bit) and not fleet.with_room(demand, bit):
        yield WhyNot(Cause.DEVICES, Statement("no single GPU of it has as much free as the pod asks for"))
