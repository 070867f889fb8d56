"""Borrowing pods whose required anti-affinity keeps a waiting pod off nodes: victims like those that hold its room.

kube-scheduler obeys the anti-affinity of the pods on nodes, against pods of any namespace: by it a borrowing pod could
shield GPUs. A node is of use only once all of these pods are gone. Where one of them is no possible victim, such as a
guaranteed pod or one without GPUs, the node stays closed. The waiting pod's own rules are its owner's, and are kept.
"""

from collections.abc import Set
from dataclasses import replace
from typing import Final, NamedTuple

from webhook.core.model.amounts import Namespace, NodeName, ResourceName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.topology import AffinityRule
from webhook.core.placement.pod_counts import PlacedPod
from webhook.core.placement.topology_rules import TopologyRequest, domains_of, evaluate_topology
from webhook.core.reclaim.costs import CostScale, DevicesAfter
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victim_search import VictimChoice, clear, shortfall
from webhook.core.reclaim.victims import NOWHERE, Victim

MOST: Final = 64
"""Nodes that are searched for one pod, those with the fewest excluders first."""

_EXCLUDERS: Final = (NOWHERE, ResourceName("excluders"))


class ExcludedNode(NamedTuple):
    """A node that a pod may use once all of these victims are gone."""

    node: NodeName
    excluders: tuple[Victim, ...]


class Excluders:
    """The pods with anti-affinity of one round of planning."""

    def __init__(self, snapshot: ReclaimSnapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[Namespace, dict[Uid, PlacedPod]] = {}

    def among(self, uids: Set[Uid], waiting: ReclaimPod) -> tuple[PlacedPod, ...]:
        """Return those of some pods that may exclude nodes for a pod."""
        homes = [self._having_rules(home) for home in self._rules_against(waiting)] if uids else ()
        return tuple([there[uid] for there in homes for uid in uids & there.keys()])

    def nodes(self, waiting: ReclaimPod, slots: int, request: TopologyRequest) -> list[ExcludedNode]:
        """Return those of some excluded slots that a pod may use once victims are gone, and these victims."""
        fleet, by_slots, left_out = self._snapshot.fleet, dict[int, list[Victim]](), dict.fromkeys(request.left_out)
        for home, rules in self._rules_against(waiting).items():
            for uid, placed in self._having_rules(home).items():
                victim, closed = self._snapshot.victim_index.get(uid), slots & self._closed(placed, rules)
                if closed and placed not in left_out and victim is not None and victim.node == placed.node:
                    left_out[placed] = None
                    by_slots.setdefault(closed, []).append(victim)
        if not by_slots:
            return []
        without = request._replace(left_out=tuple(left_out))
        slots &= evaluate_topology(without, fleet, self._snapshot.pod_counts).allowed
        found: dict[NodeName, ExcludedNode] = {}
        for closed in sorted(by_slots, key=lambda closed: len(by_slots[closed])):
            room = fleet.with_room(waiting.demand, closed & slots)
            for node in (*fleet.names_of(room), *fleet.names_of(closed & slots & ~room)):
                if node not in found and len(found) < MOST:
                    bit = fleet.bit(node)
                    several = (victim for there, victims in by_slots.items() if there & bit for victim in victims)
                    found[node] = ExcludedNode(node, tuple(several))
        return list(found.values())

    def offer(self, excluded: ExcludedNode, waiting: ReclaimPod, scale: CostScale) -> VictimChoice | None:
        """Return the cheapest choice of victims that leaves room and none of the excluders."""
        fleet, node = self._snapshot.fleet, excluded.node
        need = shortfall(fleet, {node: (waiting.demand,)})
        amounts = {**need.amounts, _EXCLUDERS: len(excluded.excluders)}
        need = replace(need, amounts=amounts, excluders=frozenset(victim.uid for victim in excluded.excluders))
        nodes = dict.fromkeys((node, *(victim.node for victim in excluded.excluders)))
        room = DevicesAfter(fleet.device_slots(node), node)
        return clear(need, tuple(nodes), self._snapshot.victim_index, room=room, scale=scale)

    def _rules_against(self, waiting: ReclaimPod) -> dict[Namespace, set[AffinityRule]]:
        found: dict[Namespace, set[AffinityRule]] = {}
        for home, rule in self._snapshot.pod_counts.against(waiting.namespace, waiting.labels):
            found.setdefault(home, set()).add(rule)
        return found

    def _having_rules(self, home: Namespace) -> dict[Uid, PlacedPod]:
        if home not in self._known:
            self._known[home] = {
                placed.pod.uid: placed
                for placed in self._snapshot.pod_counts.placed(home)
                if isinstance(placed.pod, Resident) and placed.pod.anti_affinity_rules
            }
        return self._known[home]

    def _closed(self, placed: PlacedPod, rules: Set[AffinityRule]) -> int:
        """Return the slots that a pod excludes by these rules."""
        found, fleet = 0, self._snapshot.fleet
        for rule in rules & set(placed.pod.anti_affinity_rules):
            found |= domains_of((placed.node,), fleet.domains(rule.keys[0]), fleet)
        return found
