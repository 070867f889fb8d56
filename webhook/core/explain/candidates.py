"""The candidate nodes for a pod: the best with their costs, and what excludes the others, pods with rules included.

For explanations, not for decisions: it visits every node.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from webhook.core.admission.why_not import NodeRequest, why_not
from webhook.core.model.amounts import Namespace, NodeName, natural_sort_key, plural, printable
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import Pod, Resident
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.score import Cost
from webhook.core.world.world import World

BEST: Final = 5
"""Nodes that are shown with their costs."""


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
    """A pod of a tier among all nodes."""

    fleet: Fleet
    request: NodeRequest
    tier: Tier
    keep_whole: int = 0

    def candidates(self) -> Candidates:
        """Return the candidates."""
        fleet, demand, spread = self.fleet, self.request.demand, self.request.spread
        usable = fleet.matching(self.request.constraints) & fleet.open_bits & ~self.request.avoided.closed
        spread_slots = spread.narrowed(usable, lambda among: fleet.with_room(demand, among))
        room = fleet.with_room(demand, usable & spread.allowed)
        causes: dict[str, list[NodeName]] = {}
        for node in fleet.nodes():
            if not room & fleet.bit(node.name):
                for first in islice(why_not(node, self.request, fleet), 1):
                    causes.setdefault(first.cause, []).append(node.name)
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
        request = self.request
        among = self.fleet.matching(request.constraints) & request.spread.allowed & ~request.avoided.closed
        order = self._ranked(among, count=len(self.fleet))
        return order.index(name) + 1 if name in order else None

    def _ranked(self, among: int, *, count: int) -> list[NodeName]:
        """Return the best of some nodes in order, those last that the team takes last."""
        found: list[NodeName] = []
        demand, last = self.request.demand, self.request.avoided.last
        for part in (among & ~last, among & last):
            found += best_nodes(self.fleet, demand, part, count=count, tier=self.tier, keep_whole=self.keep_whole)
        return found[:count]

    def _cost(self, name: NodeName) -> Cost | None:
        fleet = self.fleet
        resource = fleet.gpus.resource_for(self.request.demand)
        if resource is None:
            return None
        view = fleet.gpus.view(resource)
        number = max(view.classes.numbers(fleet.bit(name)))
        ranking = view.ranking(self.request.demand, resource, self.tier)
        return ranking.cost(view.classes.all[number]) if number >= 0 else None


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
