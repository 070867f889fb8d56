"""Pods in line as reclaim sees them: those that it may make room for before they start."""

from dataclasses import replace

from webhook.core.admission.domain_rules import request_of
from webhook.core.admission.pools import allowed_pools
from webhook.core.model.decision import Charge
from webhook.core.model.names import TeamName, User
from webhook.core.model.pod import Pod
from webhook.core.model.tier import Tier
from webhook.core.quota.charged_pod import flight_of
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.reclaim.reclaim_pod import ReclaimPod, SchedulerReport
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


def as_guaranteed(waiting: WaitingPod, pod: Pod, *, team: TeamName, user: User | None) -> ReclaimPod:
    """Return a pod in line as a guaranteed pod that finds no room; `pod` has its demand resolved."""
    labeled = pod._replace(team_label=team, tier_label=str(Tier.GUARANTEED))
    charge = Charge(team, Tier.GUARANTEED, pod.demand.gpus, None, user)
    return ReclaimPod(
        flight_of(labeled, charge).pod._replace(created=waiting.created),
        labels=pod.labels,
        constraints=pod.constraints,
        topology=pod.topology,
        report=SchedulerReport(waiting.created, is_for_room=True),
    )


def as_charged(waiting: WaitingPod, flight: InFlightCharge, world: World, *, since: int = 0) -> ReclaimPod | None:
    """Return a pod in line that is charged inside its team's share and starts once reclaim has made its room.

    It is bound to the pool of the node that was chosen for it, if it may use that, or else to its first one, and where
    that node has room, it has it there. `since` is when its charge was seen first, in Unix seconds. None where it is
    not such a pod now.
    """
    charge, pod, fleet = flight.charge, waiting.pod, world.fleet
    pools = [world.pools.joined(pod.constraints, pool) for pool in allowed_pools(pod, charge.team, world).allowed]
    is_due = flight.takes_back and charge.tier is Tier.GUARANTEED and charge.team == waiting.team and waiting.has_turn
    if not (is_due and pools):
        return None
    bit = 0 if flight.node is None else fleet.bit(flight.node)
    constraints = next((each for each in pools if fleet.matching(each) & bit), pools[0])
    found = as_guaranteed(waiting, pod, team=charge.team, user=charge.user)
    gang = pod.gang
    return replace(
        found,
        constraints=constraints,
        gang=None if gang is None else gang.id,
        domain=None if gang is None else request_of(gang, world),
        chosen=() if flight.node is None else (flight.node,),
        report=SchedulerReport(max(since, waiting.created), is_for_room=True),
        in_line=waiting,
    )
