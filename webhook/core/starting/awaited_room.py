"""Charged pods that keep their gate until reclaim has taken back their room, and which of them may start now.

The leader of the webhook charges such a pod; the evictor, which sees the charge, keeps room for it on a node, lets it
tolerate the taint of that node, and evicts. Then the leader removes the gate: kube-scheduler comes to the pod once.
Until then the pod is assumed on the node that keeps its room. Without an evictor, it starts after a while as it is.
"""

from dataclasses import dataclass
from typing import Final

from webhook.core.model.decision import Admit
from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName, Uid
from webhook.core.model.selector import HELD
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.starting.charged_in_line import demand_charged, resumed
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

UNHELD_SECONDS: Final = 30.0
"""A pod for which no node keeps room for so long starts all the same, and waits for room in kube-scheduler: the evictor
does not run, or may not evict anything for it now."""

FREE_SECONDS: Final = 0.1
"""Room must be free for so long: kube-scheduler may see a victim go later than this replica, and pauses for a
second or more for a pod that it found no room for."""

LONGEST_SECONDS: Final = 330.0
"""So long after notice and grace periods a pod starts in any case. The evictor keeps no room for longer than 300 s."""


@dataclass(slots=True)
class _Awaiting:
    """A pod as it was charged, and as it was `seen` last."""

    waiting: WaitingPod
    seen: WaitingPod
    flight: InFlightCharge
    since: float
    unheld_since: float
    node: NodeName | None = None
    free_since: float | None = None


class AwaitedRoom:
    """The pods that are charged and keep their gate. Times are in seconds of any clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pods: dict[Uid, _Awaiting] = {}

    @property
    def is_settling(self) -> bool:
        """Whether the room of a pod is free, and it starts soon."""
        return any(each.free_since is not None for each in self._pods.values())

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._pods

    def add(self, waiting: WaitingPod, flight: InFlightCharge, *, now: float) -> None:
        """Add a pod whose charge is listed."""
        demand = demand_charged(waiting, flight, self._world)
        flight = flight._replace(pod=flight.pod._replace(demand=demand))
        self._pods[waiting.uid] = _Awaiting(waiting, waiting, flight, since=now, unheld_since=now)

    def take(self, *, now: float, count: int) -> list[tuple[WaitingPod, Admit]]:
        """Return at most so many pods that start now, those that were charged first before others; forget them."""
        if not self._pods:
            return []
        held, free = self._world.fleet.tainted(HELD), _Free(self._world)
        for uid, each in list(self._pods.items()):
            self._follow(uid, each, held, free, now=now)
        found: list[tuple[WaitingPod, Admit]] = []
        for uid, each in list(self._pods.items()):
            if len(found) < count and self._starts(each, free, now=now):
                del self._pods[uid]
                has_room = each.node is not None
                found.append((each.waiting, resumed(each.seen, each.flight, self._world, has_room=has_room)))
        return found

    def _follow(self, uid: Uid, each: _Awaiting, held: dict[str, NodeName], free: "_Free", *, now: float) -> None:
        """Assume a pod on the node that keeps its room now; forget one that is gone or no longer has a gate."""
        waiting = self._world.waiting.get(uid)
        if waiting is None:
            del self._pods[uid]
            return
        each.seen = waiting
        each.node = next((node for hold in reversed(waiting.holds) if (node := held.get(hold)) is not None), None)
        if each.node is None:
            return
        each.unheld_since = now
        if each.flight.node != each.node:
            each.flight = each.flight._replace(node=each.node)
            self._world.drop_reservation(uid)
            self._world.assume(each.flight)
        free.add(each.node, each.flight.pod.demand)

    def _starts(self, each: _Awaiting, free: "_Free", *, now: float) -> bool:
        policy = self._world.policy
        if not (policy.is_enforced and each.seen.has_turn):
            return True  # the release finds out what became of it
        rules = policy.reclaim
        is_free = each.node is not None and free.takes(each.node, each.flight.pod.demand)
        each.free_since = None if not is_free else now if each.free_since is None else each.free_since
        if each.free_since is not None:
            return now >= each.free_since + FREE_SECONDS
        if now >= each.since + rules.notice_seconds + rules.longest_grace_seconds + LONGEST_SECONDS:
            return True
        return each.node is None and now >= each.unheld_since + UNHELD_SECONDS


class _Free:
    """What is free on the nodes that keep room, but for the pods that it is kept for, which are assumed there."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._amounts: dict[tuple[NodeName, ResourceName], int] = {}

    def add(self, node: NodeName, demand: Demand) -> None:
        """Add the room of a pod that is assumed on a node."""
        for key, amount in _amounts(node, demand).items():
            self._amounts[key] = self._amounts.get(key, self._world.fleet.free(*key)) + amount

    def takes(self, node: NodeName, demand: Demand) -> bool:
        """Take the room of a pod; False where it is not there yet."""
        amounts = _amounts(node, demand)
        if any(self._amounts.get(key, 0) < amount for key, amount in amounts.items()):
            return False
        for key, amount in amounts.items():
            self._amounts[key] -= amount
        return True


def _amounts(node: NodeName, demand: Demand) -> dict[tuple[NodeName, ResourceName], int]:
    return {(node, resource): amount for resource, amount in demand.requests}
