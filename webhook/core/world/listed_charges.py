"""The charges that TeamLedgers list, in a world that only reads them: what no pod that was read shows yet.

A pod that keeps its gate until reclaim has made its room is among them. Where no ledger can be read, such a pod is
known by what the evictor wrote: it tolerates the taint of a node that keeps room, and only charged pods get that.
"""

from collections.abc import Iterable, Mapping

from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import HELD, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand
from webhook.core.quota.charges import InFlightCharge, flight_of
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


class ListedCharges:
    """Keeps a world's charges as its ledgers list them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledgers: dict[str, Mapping[Uid, InFlightCharge]] = {}

    def set(self, ledger: str, flights: Mapping[Uid, InFlightCharge]) -> None:
        """Take over what a ledger lists now; nothing where it is gone."""
        before = self._ledgers.pop(ledger, {})
        if flights:
            self._ledgers[ledger] = flights
        for uid in before.keys() - flights.keys():
            if not any(uid in each for each in self._ledgers.values()):
                self._world.drop_reservation(uid)
        _assume_listed(self._world, flights.values())


def assume_charges(world: World, listed: Iterable[InFlightCharge] | None) -> None:
    """Charge what no pod shows yet: what ledgers list, or what can be known where none can be read (None)."""
    if listed is None:
        _assume_marked(world)
    else:
        _assume_listed(world, listed)


def _assume_listed(world: World, flights: Iterable[InFlightCharge]) -> None:
    """Charge what ledgers list, each once: a queued pod on the node that keeps its room, with what it asks for."""
    held = world.fleet.tainted(HELD)
    for flight in flights:
        if (waiting := world.waiting.get(flight.pod.uid)) is None:
            world.assume(flight)
        else:
            pod = flight.pod._replace(demand=demand_charged(waiting, flight, world))
            world.assume(flight._replace(pod=pod, node=kept_for(waiting, held) or flight.node))


def _assume_marked(world: World) -> None:
    """Charge the queued pods for which a node keeps room, where no ledger can be read."""
    held = world.fleet.tainted(HELD)
    for waiting in list(world.waiting.all()) if held else ():
        node = kept_for(waiting, held)
        if node is not None:
            pod = waiting.pod._replace(demand=world.with_claims(waiting.pod).demand, team_label=waiting.team)
            pod = pod._replace(tier_label=str(Tier.GUARANTEED))
            has_models = (team := world.policy.team(waiting.team)) is not None and team.has_model_shares
            model = known.model if has_models and (known := world.fleet.get(node)) is not None else None
            charge = Charge(waiting.team, Tier.GUARANTEED, pod.demand.gpus, model, waiting.user)
            world.assume(flight_of(pod, charge)._replace(node=node, takes_back=True))


def demand_charged(waiting: WaitingPod, flight: InFlightCharge, world: World) -> Demand:
    """Return what a waiting pod is charged for: a ledger does not say which of its resources are devices."""
    asked = world.with_claims(waiting.pod).demand
    return asked if asked.gpus == flight.charge.gpus else flight.pod.demand


def kept_for(waiting: WaitingPod, held: Mapping[str, NodeName]) -> NodeName | None:
    """Return the node that keeps room for a queued pod; `held` are such nodes by the values of their taints."""
    return next((node for hold in reversed(waiting.holds) if (node := held.get(hold)) is not None), None)
