"""Room that is being made for an entry.

Pods that the ledger lists already and that still have the gate: what was charged goes on as it was charged.

The answer to a write was lost, another leader made it, or reclaim takes back the room of the pod first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.core.admission.domain_rules import place_of_node
from webhook.core.admission.node_choice import choice_of_node, in_domain
from webhook.core.admission.pools import allowed_pools
from webhook.core.model.amounts import GangId, NodeName, ResourceName, Uid, plural_gpus
from webhook.core.model.constraints import HELD, Tier, Toleration
from webhook.core.model.decision import Admit, NodeChoice
from webhook.core.model.demand import Demand
from webhook.core.model.pod import NO_LABELS
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.listed_charges import demand_charged, kept_for
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


def unfinished(world: World, charged: Iterable[InFlightCharge]) -> list[tuple[WaitingPod, Admit]]:
    """Return the pods that are charged and still have the gate, with the decision that was charged."""
    found = ((world.waiting.get(flight.pod.uid), flight) for flight in charged)
    return [(waiting, resumed(waiting, flight, world)) for waiting, flight in found if waiting is not None]


def resumed(waiting: WaitingPod, flight: InFlightCharge, world: World, *, has_room: bool = False) -> Admit:
    """Return the decision on a waiting pod that is charged already. `has_room`: its room is free on the node charged.

    Where it is not, reclaim is to make it, there or elsewhere: the node is preferred then.
    """
    charge, pod = flight.charge, waiting.pod
    held = tuple([Toleration(HELD, value=hold) for hold in waiting.holds])
    pod = pod._replace(constraints=pod.constraints.joined(tolerations=held)) if held else pod
    pools = allowed_pools(pod, charge.team, world).allowed
    choice = NodeChoice(Mode.OFF) if flight.node is None else choice_of_node(pod, flight.node, pools, world)
    demand = demand_charged(waiting, flight, world)
    if flight.node is not None and choice.nodes and not has_room and world.fleet.is_overbooked(flight.node, demand):
        choice = choice._replace(mode=Mode.PREFER)
    node = None if flight.node is None else world.fleet.get(flight.node)
    if (place := place_of_node(pod.gang, node, world)) is not None:
        choice = in_domain(choice, place)
    is_guaranteed = charge.tier is Tier.GUARANTEED
    code = Code.WITHIN_SHARE if is_guaranteed else Code.BORROWS
    reason = Reason(code, "charged to team {team}", {"team": charge.team})
    requested = pod.requested_tier
    return Admit(charge, demand, choice, reason, world.policy.hash, requested_tier=requested)


# Charged pods that keep their gate until reclaim has taken back their room, and which of them may start now.
#
# The leader of the webhook charges such a pod; the evictor, which sees the charge, keeps room for it on a node, lets it
# tolerate the taint of that node, and evicts. Then the leader removes the gate: kube-scheduler comes to the pod once.
# Until then the pod is assumed on the node that keeps its room, or where it was charged if it has room there. The pods
# of a gang start once all of them have room. Without an evictor, pods start after a while as they are.


UNHELD_SECONDS: Final = 30.0
"""A pod without room for which no node keeps any for so long starts all the same, with its gang, and waits for room in
kube-scheduler: the evictor does not run, or may not evict anything for it now."""

FREE_SECONDS: Final = 0.1
"""Room must be free for so long: kube-scheduler may see a victim go later than this replica, and pauses for a
second or more for a pod that it found no room for."""

MOST: Final = 1024
"""Pods of all teams that keep their gate: each pass looks at all of them, and ledgers list them. Others start as they
are."""

LONGEST_SECONDS: Final = 330.0
"""So long after notice and grace periods a pod starts in any case. The evictor keeps no room for longer than 300 s."""


def awaiting(flight: InFlightCharge) -> InFlightCharge:
    """Return the charge of a pod that keeps its gate until its room is there.

    It may be listed for long, and tenants choose the length of labels: those are left out.
    """
    return flight._replace(pod=flight.pod._replace(packed=NO_LABELS), takes_back=True)


@dataclass(slots=True)
class _Awaiting:
    """A pod as it was charged, and as it was `seen` last. On `node` it is assumed; `is_held`: that keeps its room."""

    waiting: WaitingPod
    seen: WaitingPod
    flight: InFlightCharge
    since: float
    without_since: float
    node: NodeName | None = None
    is_held: bool = False
    free_since: float | None = None


class AwaitedRoom:
    """The pods that are charged and keep their gate. Times are in seconds of any clock."""

    def __init__(self, world: World) -> None:
        self.is_settling = False
        """Whether the room of a pod, or of all of its gang, is free, and it starts soon."""
        self._world = world
        self._pods: dict[Uid, _Awaiting] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._pods

    def add(self, waiting: WaitingPod, flight: InFlightCharge, *, now: float) -> None:
        """Add a pod whose charge is listed."""
        demand = demand_charged(waiting, flight, self._world)
        flight = flight._replace(pod=flight.pod._replace(demand=demand))
        self._pods[waiting.uid] = _Awaiting(waiting, waiting, flight, since=now, without_since=now)

    def take(self, *, now: float, count: int) -> list[tuple[WaitingPod, Admit]]:
        """Return the pods that start now, those that were charged first before others; forget them.

        Once there are `count` no others follow: a gang makes them more.
        """
        self.is_settling = False
        if not self._pods:
            return []
        free = _Free(self._world)
        for uid, each in list(self._pods.items()):
            self._follow(uid, each, free, now=now)
        found: list[tuple[WaitingPod, Admit]] = []
        for together in self._groups():
            if len(found) >= count:
                break
            if self._start(together, free, now=now):
                why = _why(together)
                for each in together:
                    del self._pods[each.waiting.uid]
                    has_room = each.is_held or each.free_since is not None
                    admit = resumed(each.seen, each.flight, self._world, has_room=has_room)
                    if (place := admit.node_choice.domain) is not None and why:
                        choice = admit.node_choice._replace(domain=place._replace(why=why))
                        admit = admit._replace(node_choice=choice)
                    found.append((each.waiting, admit))
        return found

    def _groups(self) -> Sequence[Sequence[_Awaiting]]:
        """Return the pods by gang. Those of one that has started are alone, and those that may no longer start."""
        groups: dict[GangId | Uid, list[_Awaiting]] = {}
        for uid, each in self._pods.items():
            gang = each.waiting.pod.gang
            is_together = gang is not None and each.seen.has_turn and not self._world.gangs.has_started(gang.id)
            groups.setdefault(gang.id if gang is not None and is_together else uid, []).append(each)
        return [*groups.values()]

    def _follow(self, uid: Uid, each: _Awaiting, free: "_Free", *, now: float) -> None:
        """Assume a pod on the node that keeps its room now; forget one that is gone or no longer has a gate.

        Where none does, it may have its room where it is charged, if that node keeps none for others.
        """
        waiting = self._world.waiting.get(uid)
        if waiting is None:
            del self._pods[uid]
            return
        each.seen = waiting
        keeps = kept_for(waiting, free.held)
        each.node, each.is_held = keeps or each.flight.node, keeps is not None
        if keeps is not None:
            each.without_since = now
            if each.flight.node != keeps:
                each.flight = each.flight._replace(node=keeps)
                self._world.drop_reservation(uid)
                self._world.assume(each.flight)
        elif each.node is None or not free.is_for_any(each.node):
            each.node = None
        if each.node is not None:
            free.add(each.node, each.flight.pod.demand)

    def _start(self, together: Sequence[_Awaiting], free: "_Free", *, now: float) -> bool:
        """Whether pods start now, all of them."""
        policy = self._world.policy
        if not (policy.is_enforced and together[0].seen.has_turn):
            return True  # the release finds out what became of it
        for each in together:
            is_free = each.node is not None and free.takes(each.node, each.flight.pod.demand)
            each.free_since = None if not is_free else now if each.free_since is None else each.free_since
            each.without_since = now if is_free else each.without_since
        free_since = [each.free_since for each in together if each.free_since is not None]
        if len(free_since) == len(together):
            is_over = now >= max(free_since) + FREE_SECONDS
            self.is_settling |= not is_over
            return is_over
        rules = policy.reclaim
        longest = rules.notice_seconds + rules.longest_grace_seconds + LONGEST_SECONDS
        return any(
            now >= each.since + longest or now >= each.without_since + UNHELD_SECONDS
            for each in together
            if each.free_since is None
        )


def _why(together: Sequence[_Awaiting]) -> str:
    """Return why a gang is in its domain; "" for a pod alone, and if no node keeps room for any of them."""
    kept, number = sum(each.flight.charge.gpus for each in together if each.is_held), len(together)
    return (
        f"{plural_gpus(kept)} were reserved there for {number} pods that start together" if kept and number > 1 else ""
    )


class _Free:
    """What is free on the nodes of pods that await room, but for these pods, which are assumed there.

    `held` are the nodes that keep room, by the values of their taints.
    """

    def __init__(self, world: World) -> None:
        self.held = world.fleet.tainted(HELD)
        self._kept = frozenset(self.held.values())
        self._fleet = world.fleet
        self._amounts: dict[tuple[NodeName, ResourceName], int] = {}

    def is_for_any(self, node: NodeName) -> bool:
        """Whether a node takes pods, and keeps no room."""
        return node not in self._kept and bool(self._fleet.bit(node) & self._fleet.open_bits)

    def add(self, node: NodeName, demand: Demand) -> None:
        """Add the room of a pod that is assumed on a node."""
        for key, amount in _amounts(node, demand).items():
            self._amounts[key] = self._amounts.get(key, self._fleet.free(*key)) + amount

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
