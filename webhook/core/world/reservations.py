"""Tentative room, pools.

Which pools are open to a team, and what a pod in a pool requires, cached for one policy: many pods ask the same.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from webhook.core.model.amounts import Namespace, NodeName, PoolName, TeamName, Uid
from webhook.core.model.constraints import Constraints
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.policy import Policy, Pool
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.pod_counts import PlacedPod, PodCounts
from webhook.core.placement.rejecting_nodes import RejectingNodes

_KEPT_JOINS: Final = 1024
"""Pairs of pod constraints and pool remembered."""


class PoolAccess:
    """The pools of a policy: which are open to a team, and on what conditions a pod is in one."""

    def __init__(self, policy: Policy) -> None:
        self._pools = policy.pools
        self.selective = tuple([pool for pool in policy.pools if pool.match is not None])
        self._open: dict[TeamName, tuple[Pool, ...]] = {}
        self._joined: dict[tuple[Constraints, PoolName], Constraints] = {}

    def open_to(self, team: TeamName) -> tuple[Pool, ...]:
        """List the pools that any pod of a team may use: those without a `match` of their own."""
        known = self._open.get(team)
        if known is None:
            known = tuple(pool for pool in self._pools if pool.match is None and pool.admits(team))
            self._open[team] = known
        return known

    def joined(self, constraints: Constraints, pool: Pool) -> Constraints:
        """Add a pool's conditions to a pod's own."""
        if not (pool.node_selector or pool.affinity or pool.tolerations):
            return constraints
        key = (constraints, pool.name)
        known = self._joined.get(key)
        if known is None:
            known = constraints.joined(
                node_selector=pool.node_selector, requirements=pool.affinity, tolerations=pool.tolerations
            )
            if known.is_small:
                if len(self._joined) >= _KEPT_JOINS:
                    self._joined.clear()
                self._joined[key] = known
        return known


# Tentative reservations: room on nodes chosen by the mutating step, held until the validating step commits.
#
# A pod has no name yet when the mutating step chooses its node. A reservation is therefore found by node and demand: a
# pod that commits exactly that consumes the oldest reservation of its own controller, or else the oldest one.
#
# A reservation keeps no pod out: one that finds no room, new or queued, is judged again without any. Else a tenant
# whose pods pass the mutating step and are refused after it could keep room for as long as it sends them. And it
# expires.
#
# Nodes are ranked as if the reservations were not there: the pods of a burst fill a node together, as they would if
# they came one by one to a node in use. Pods with a reservation count for topology rules.


TENTATIVE_SECONDS: Final = 10
"""How long a reservation lasts: the commit follows within milliseconds, but requests of a burst queue up before it."""


MOST: Final = 1000
"""Open reservations; beyond it the oldest ends. Only pods that are refused after the mutating step leave many, and
ending all at once, which takes 7 us for each, holds up all requests."""


class _Reservation:
    """Room on a node. Of the pod it holds no user text of unbounded length."""

    __slots__ = ("anti_affinity_rules", "demand", "expires_at", "holder", "labels", "namespace", "node", "owner")

    def __init__(self, node: NodeName, pod: Pod, holder: Uid, expires_at: int) -> None:
        self.node, self.demand = node, pod.demand
        self.holder, self.expires_at = holder, expires_at
        self.namespace, self.owner = pod.namespace, pod.owner
        self.labels: Mapping[str, str] = pod.labels
        self.anti_affinity_rules = pod.anti_affinity_rules

    def has_origin_of(self, pod: Pod | Resident) -> bool:
        """Whether a pod has the namespace and the controller of the reservation."""
        return self.owner == pod.owner and self.namespace == pod.namespace


class TentativeReservations:
    """The open reservations. Their room is reserved in the fleet that is passed to each method."""

    def __init__(self, pod_counts: PodCounts | None = None, rejecting: RejectingNodes | None = None) -> None:
        self._pod_counts = pod_counts or PodCounts()
        self._rejecting = RejectingNodes() if rejecting is None else rejecting
        self._pod_counts.sources.append(self.placed)
        self._open: OrderedDict[_Reservation, None] = OrderedDict()  # the oldest first
        self._by_node: dict[NodeName, list[_Reservation]] = {}
        self._count = 0

    def has(self, node: NodeName, demand: Demand) -> bool:
        """Whether the node has a reservation of exactly this demand."""
        return any(each.demand == demand for each in self._by_node.get(node, ()))

    def reserve(self, fleet: Fleet, node: NodeName, pod: Pod, *, now: int) -> None:
        """Reserve room for a pod on its chosen node."""
        self._count += 1
        reservation = _Reservation(node, pod, Uid(f"tentative-{self._count}"), now + TENTATIVE_SECONDS)
        self._open[reservation] = None
        beside = self._by_node.get(node)
        if beside is None:
            self._by_node[node] = [reservation]
        else:
            beside.append(reservation)
        self._pod_counts.change(reservation, node, 1)
        fleet.reserve(node, pod.demand, holder=reservation.holder)
        self._rejecting.try_out(node, pod.namespace, reservation.holder, pod.demand)
        if len(self._open) > MOST:
            self._remove(fleet, next(iter(self._open)))

    def consume(self, fleet: Fleet, node: NodeName | None, pod: Pod | Resident) -> None:
        """Drop one reservation of exactly this node and demand, whose pod is charged now."""
        if node is None:
            return
        if reservations := [each for each in self._by_node.get(node, ()) if each.demand == pod.demand]:
            own = (each for each in reservations if each.has_origin_of(pod))
            self._remove(fleet, next(own, reservations[0]))
        self._rejecting.try_out(node, pod.namespace, pod.uid, pod.demand)

    def expire(self, fleet: Fleet, *, now: int) -> bool:
        """Drop the expired reservations, and those of a clock that was ahead; return whether there were any."""
        expired = [each for each in self._open if not now < each.expires_at <= now + TENTATIVE_SECONDS]
        for each in expired:
            self._remove(fleet, each)
        return bool(expired)

    def clear(self, fleet: Fleet) -> bool:
        """Drop all reservations; return whether there were any."""
        had_any = bool(self._open)
        for each in [*self._open]:
            self._remove(fleet, each)
        return had_any

    def placed(self, namespace: Namespace) -> Iterator[PlacedPod]:
        """Return the pods of a namespace that have a reservation, with their nodes."""
        for reservation in self._open:
            if reservation.namespace == namespace:
                yield PlacedPod(reservation, reservation.node)

    def _remove(self, fleet: Fleet, reservation: _Reservation) -> None:
        node = reservation.node
        del self._open[reservation]
        beside = self._by_node[node]
        beside.remove(reservation)
        if not beside:
            del self._by_node[node]
        fleet.reserve(node, reservation.demand, sign=-1, holder=reservation.holder)
        fleet.rerank(node)
        self._pod_counts.change(reservation, node, -1)
        self._rejecting.give_up(node, reservation.namespace, reservation.holder)
