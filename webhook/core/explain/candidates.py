"""The candidate nodes for a pod: the best with their costs, and what excludes the others.

For explanations, not for decisions: it visits every node.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import HOST_PORT, NodeName
from webhook.core.model.node import Node
from webhook.core.model.selector import ANY_HOLD, Constraints
from webhook.core.model.text import natural_sort_key
from webhook.core.model.tier import Tier
from webhook.core.peers.topology_filter import NO_SPREAD, TopologyFilter
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.placement import best_nodes
from webhook.core.placement.rejecting_nodes import NOTHING_AVOIDED, AvoidedNodes
from webhook.core.placement.score import Cost

BEST: Final = 5
"""Nodes that are shown with their costs."""


class Exclusion(StrEnum):
    """What excludes a node, the first that applies; others are texts of the node."""

    HELD = "held for waiting pods"
    REJECTS = "rejected the team's last pods"
    UNUSED = "kube-scheduler finds no room for pods of the same controller"
    CONSTRAINTS = "selectors, affinity or taints"
    VOLUME = "a bound volume is not usable there"
    NEVER = "too small even when empty"
    LESSENED = "offers fewer devices now than it has"
    DEVICES = "no room on single GPUs"


class Candidate(NamedTuple):
    """A node that has room; `cost` is None if it has no GPUs of the compared resource."""

    node: NodeName
    cost: Cost | None


class Filtered(NamedTuple):
    """A cause, or a text with the label or resource, and the nodes that it excludes, by name."""

    cause: str
    names: tuple[NodeName, ...]


class Candidates(NamedTuple):
    """The best nodes in order, the number of nodes with room, and the others by cause, the most frequent first."""

    best: tuple[Candidate, ...]
    with_room: int
    filtered: tuple[Filtered, ...]


@dataclass(frozen=True, slots=True)
class NodeSearch:
    """A pod among all nodes; `constraints` are its own and those of its pool.

    `avoided` are the nodes that its team does not use, or takes last.
    """

    fleet: Fleet
    demand: Demand
    constraints: Constraints
    tier: Tier
    keep_whole: int = 0
    spread: TopologyFilter = NO_SPREAD
    avoided: AvoidedNodes = NOTHING_AVOIDED

    def candidates(self) -> Candidates:
        """Return the candidates."""
        fleet, demand = self.fleet, self.demand
        matching = fleet.matching(self.constraints)
        usable = matching & fleet.open_bits & ~self.avoided.closed
        spread_slots = self.spread.narrowed(usable, lambda among: fleet.with_room(demand, among))
        room = fleet.with_room(demand, usable & self.spread.allowed)
        filters = _Filters(
            matching=matching,
            matching_if_held=fleet.matching(self.constraints.joined(tolerations=(ANY_HOLD,))),
            able=fleet.with_capacity(demand, matching),
            could=fleet.could_hold(demand, matching),
        )
        causes: dict[str, list[NodeName]] = {}
        for node in fleet.nodes():
            if not room & fleet.bit(node.name):
                causes.setdefault(self._cause(node, filters), []).append(node.name)
        return Candidates(
            tuple([Candidate(name, self._cost(name)) for name in self._ranked(spread_slots, count=BEST)]),
            room.bit_count(),
            tuple(
                Filtered(cause, tuple(sorted(names, key=natural_sort_key)))
                for cause, names in sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
            ),
        )

    def place_of(self, name: NodeName) -> int | None:
        """Return the place of a node among those that have room; None if it has none."""
        among = self.fleet.matching(self.constraints) & self.spread.allowed & ~self.avoided.closed
        order = self._ranked(among, count=len(self.fleet))
        return order.index(name) + 1 if name in order else None

    def _ranked(self, among: int, *, count: int) -> list[NodeName]:
        """Return the best of some nodes in order, those last that the team takes last."""
        found: list[NodeName] = []
        for part in (among & ~self.avoided.last, among & self.avoided.last):
            found += best_nodes(self.fleet, self.demand, part, count=count, tier=self.tier, keep_whole=self.keep_whole)
        return found[:count]

    def _cost(self, name: NodeName) -> Cost | None:
        fleet = self.fleet
        resource = fleet.gpus.resource_for(self.demand)
        if resource is None:
            return None
        view = fleet.gpus.view(resource)
        number = max(view.classes.numbers(fleet.bit(name)))
        ranking = view.ranking(self.demand, resource, self.tier)
        return ranking.cost(view.classes.all[number]) if number >= 0 else None

    def _cause(self, node: Node, filters: "_Filters") -> str:
        bit = self.fleet.bit(node.name)
        if not node.is_open:
            return node.why_closed
        if not filters.matching & bit:
            if not self.fleet.labels.reached(self.constraints) & bit:
                return Exclusion.VOLUME
            return Exclusion.HELD if filters.matching_if_held & bit else Exclusion.CONSTRAINTS
        if not filters.able & bit:
            return Exclusion.LESSENED if filters.could & bit else Exclusion.NEVER
        if self.avoided.closed & bit:
            return Exclusion.UNUSED if self.avoided.unused & bit else Exclusion.REJECTS
        if (why := topology_obstacle(self.spread, bit)) is not None:
            return why
        requests, free = self.demand.requests, self.fleet.free
        short = next((resource for resource, amount in requests if free(node.name, resource) < amount), None)
        if short is None:
            return Exclusion.DEVICES
        return f"{short} in use" if short.startswith(HOST_PORT) else f"too little {short} free"


class _Filters(NamedTuple):
    """The slots that pass each filter: constraints, these on held nodes too, the size of a node now and at best."""

    matching: int
    matching_if_held: int
    able: int
    could: int


def topology_obstacle(spread: TopologyFilter, bit: int) -> str | None:
    """Return which topology rule excludes a node; None if none does."""
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
