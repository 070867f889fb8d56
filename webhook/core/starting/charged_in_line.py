"""Pods that the ledger lists already and that still have the gate: what was charged goes on as it was charged.

The answer to a write was lost, another leader made it, or reclaim takes back the room of the pod first.
"""

from collections.abc import Iterable

from webhook.core.admission.domain_rules import place_of_node
from webhook.core.admission.node_choice import choice_of_node, in_domain
from webhook.core.admission.pools import allowed_pools
from webhook.core.model.decision import Admit, NodeChoice
from webhook.core.model.policy import Mode
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import HELD, Toleration
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.world.listed_charges import demand_charged
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
