"""How the pods that run would fare under a policy: each judged again, on the node that it has. Pure.

Pods that are guaranteed now are asked first, then the older ones, so that a policy that changes nothing changes no
tier. A pod that would be refused takes nothing from those after it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.admission.pools import allowed_pools
from webhook.core.admission.preflight import Standing, standing
from webhook.core.admission.resolve_demand import count
from webhook.core.model.decision import Deny, Retry
from webhook.core.model.demand import in_slices
from webhook.core.model.names import GpuModel, PoolName, TeamName, Uid
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import CONTROLLER, Pod, Requester, Resident
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.quota.limits import guaranteed_violation, model_violation, tier_for
from webhook.core.world.world import World


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that is there: as the world holds it, and as its user asked for it."""

    resident: Resident
    asked: Pod


class Fate(NamedTuple):
    """What a policy makes of a pod: whose it is, its tier, the pool that its node is in; or why it would be refused.

    No tier and no refusal: the pod is only counted. No pool: it waits, or its node is in none that it may enter.
    """

    team: TeamName
    tier: Tier | None = None
    pool: PoolName | None = None
    refusals: tuple[Reason, ...] = ()


def requester_of(pod: Pod, user: str) -> Requester:
    """Tell who would ask for a pod: its user, or the controller that makes it."""
    return Requester(user) if pod.owner is None else CONTROLLER


def fates(running: Iterable[Running], world: World) -> dict[Uid, Fate]:
    """Judge pods one after another in a world that has nodes and namespaces, and none of them yet."""
    found: dict[Uid, Fate] = {}
    for each in sorted(running, key=_turn):
        fate = _fate(each, world)
        found[each.resident.uid] = fate
        if not fate.refusals:
            tier = None if fate.tier is None else fate.tier.value
            world.set_pod(replace(each.resident, team_label=fate.team, tier_label=tier))
    return found


def _on_its_node(pod: Pod | Deny | Retry, resident: Resident, world: World) -> Pod | Deny | Retry:
    """Count slices where a pod has slices, though it might have got whole GPUs."""
    node = None if resident.node is None else world.fleet.get(resident.node)
    if not isinstance(pod, Pod) or node is None or node.slice is None:
        return pod
    return pod._replace(demand=in_slices(pod.demand, (node.slice,), world.policy.resources))


def _turn(running: Running) -> tuple[bool, int, str, str]:
    resident = running.resident
    return resident.tier_label != Tier.GUARANTEED, resident.created, resident.namespace, resident.name


def _fate(running: Running, world: World) -> Fate:
    pod, resident = running.asked, running.resident
    team_name = world.tenancy(pod.namespace).team_name
    requester = requester_of(pod, resident.user or "")
    counted = _on_its_node(count(pod, requester, world), resident, world)
    found = standing(counted, requester, world) if isinstance(counted, Pod) else counted
    pod = counted if isinstance(counted, Pod) else pod
    if isinstance(found, Deny):
        return Fate(team_name, refusals=found.reasons)
    if not isinstance(found, Standing):
        return Fate(team_name)
    pools = allowed_pools(pod, found.team.name, world)
    refusals = found.broken + (() if pools.refusal is None else (pools.refusal,))
    node = world.fleet.get(resident.node) if resident.node is not None else None
    model: GpuModel | None = None
    if node is not None and found.team.models:
        model = node.model
        broken = model_violation(found.request, found.team, found.book, model or NO_MODEL)
        refusals += () if broken is None else (broken,)
    tier = tier_for(pod.demand.gpus, found.team, found.book, model, asked=pod.requested_tier)
    if pod.requested_tier is Tier.GUARANTEED and tier is not Tier.GUARANTEED:
        refusals += (guaranteed_violation(found.request, found.team, found.book, model),)
    bit = 0 if node is None else world.fleet.bit(node.name)
    there = [pool for pool in pools.allowed if bit & world.fleet.matching(world.joined(pod.constraints, pool))]
    if node is not None and pools.allowed and not there:
        names = ", ".join(pool.name or "the cluster" for pool in pools.allowed)
        text = f"its node {node.name} is in none of the pools that it may enter: {names}"
        refusals += (Reason(Code.NO_POOL_ALLOWED, text),)
    if refusals:
        return Fate(found.team.name, refusals=refusals)
    return Fate(found.team.name, tier, there[0].name if there else None)
