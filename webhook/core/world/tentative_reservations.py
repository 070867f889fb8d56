"""Tentative reservations: room on nodes chosen by the mutating step, held until the validating step commits.

A pod has no name yet when the mutating step chooses its node. A reservation is therefore found by node and demand: a
pod that commits exactly that consumes the oldest reservation of its own controller, or else the oldest one. A
reservation never causes a refusal, and it expires soon.

Nodes are ranked as if the reservations were not there: the pods of a burst fill a node together, as they would if they
came one by one to a node in use. Pods with a reservation count for topology rules.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.pod import Owner, Pod, Resident
from webhook.core.model.topology import AffinityRule
from webhook.core.peers.pod_counts import PlacedPod, PodCounts
from webhook.core.placement.fleet import Fleet

TENTATIVE_SECONDS: Final = 10.0
"""How long a reservation lasts: the commit follows within milliseconds, but requests of a burst queue up before it."""


MOST: Final = 1000
"""Open reservations; beyond it the oldest ends. Only pods that are refused after the mutating step leave many, and
ending all at once, which takes 7 us for each, holds up all requests."""

_Key = tuple[NodeName, Demand]


class _Reservation(NamedTuple):
    """One reservation. It holds no user text of unbounded length."""

    expires_at: float
    holder: Uid
    namespace: Namespace
    owner: Owner | None
    labels: Mapping[str, str]
    anti_affinity_rules: tuple[AffinityRule, ...]

    def has_origin_of(self, pod: Pod | Resident) -> bool:
        """Whether a pod has the namespace and the controller of the reservation."""
        return self.owner == pod.owner and self.namespace == pod.namespace


class TentativeReservations:
    """The open reservations. Their room is reserved in the fleet that is passed to each method."""

    def __init__(self, pod_counts: PodCounts | None = None) -> None:
        self._pod_counts = pod_counts or PodCounts()
        self._pod_counts.sources.append(self.placed)
        self._reservations: dict[_Key, deque[_Reservation]] = {}
        self._order: deque[tuple[float, _Key]] = deque()  # all reservations, also consumed ones, oldest first
        self._count = 0
        self._open = 0

    def has(self, node: NodeName, demand: Demand) -> bool:
        """Whether the node has a reservation of exactly this demand."""
        return (node, demand) in self._reservations

    def reserve(self, fleet: Fleet, node: NodeName, pod: Pod, *, now: float) -> None:
        """Reserve room for a pod on its chosen node."""
        demand = pod.demand
        self._count += 1
        holder = Uid(f"tentative-{self._count}")
        expires_at = now + TENTATIVE_SECONDS
        reservation = _Reservation(expires_at, holder, pod.namespace, pod.owner, pod.labels, pod.anti_affinity_rules)
        self._reservations.setdefault((node, demand), deque()).append(reservation)
        self._order.append((expires_at, (node, demand)))
        self._pod_counts.change(reservation, node, 1)
        fleet.reserve(node, demand, holder=holder)
        self._open += 1
        while self._open > MOST:
            self.expire(fleet, now=self._order[0][0])

    def consume(self, fleet: Fleet, node: NodeName | None, pod: Pod | Resident) -> None:
        """Drop one reservation of exactly this node and demand, whose pod is charged now."""
        if node is None or not self._reservations:
            return
        reservations = self._reservations.get((node, pod.demand))
        if reservations is not None:
            chosen = next((each for each in reservations if each.has_origin_of(pod)), reservations[0])
            self._remove(fleet, node, pod.demand, chosen)

    def expire(self, fleet: Fleet, *, now: float) -> None:
        """Drop the expired reservations."""
        while self._order and self._order[0][0] <= now:
            _, key = self._order.popleft()
            if key in self._reservations and self._reservations[key][0].expires_at <= now:
                self._remove(fleet, *key, self._reservations[key][0])

    def clear(self, fleet: Fleet) -> bool:
        """Drop all reservations; return whether there were any."""
        had_any = bool(self._reservations)
        self.expire(fleet, now=math.inf)
        return had_any

    def placed(self, namespace: Namespace) -> Iterator[PlacedPod]:
        """Return the pods of a namespace that have a reservation, with their nodes."""
        for (node, _), reservations in self._reservations.items():
            for reservation in reservations:
                if reservation.namespace == namespace:
                    yield PlacedPod(reservation, node)

    def _remove(self, fleet: Fleet, node: NodeName, demand: Demand, reservation: _Reservation) -> None:
        reservations = self._reservations[node, demand]
        reservations.remove(reservation)
        self._open -= 1
        if not reservations:
            del self._reservations[node, demand]
        fleet.reserve(node, demand, sign=-1, holder=reservation.holder)
        fleet.rerank(node)
        self._pod_counts.change(reservation, node, -1)
