"""How the pods that run would fare under a policy: each judged again, on the node that it has. Pure.

Pods that are guaranteed now are asked first, then the older ones, so that a policy that changes nothing changes no
tier. A pod that would be refused takes nothing from those after it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.admission.assessment import assess
from webhook.core.model.decision import Deny
from webhook.core.model.names import GpuModel, PoolName, TeamName, Uid
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import CONTROLLER, Pod, Requester, Resident
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
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
    """Return who would ask for a pod: its user, or the controller that makes it."""
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


def _turn(running: Running) -> tuple[bool, int, str, str]:
    resident = running.resident
    return resident.tier_label != Tier.GUARANTEED, resident.created, resident.namespace, resident.name


def _fate(running: Running, world: World) -> Fate:
    pod, resident = running.asked, running.resident
    node = None if resident.node is None else world.fleet.get(resident.node)
    assessed = assess(pod, requester_of(pod, resident.user or ""), world, node=node)
    if assessed.settled is not None:
        refusals = assessed.settled.reasons if isinstance(assessed.settled, Deny) else ()
        return Fate(world.tenancy(pod.namespace).team_name, refusals=refusals)
    pod, team, pools = assessed.pod, assessed.team, assessed.pools
    refusals = assessed.broken + (() if pools.refusal is None else (pools.refusal,))
    model: GpuModel | None = None
    if node is not None and team.models:
        model = node.model
        broken = assessed.model_refusal(pod.demand, model or NO_MODEL)
        refusals += () if broken is None else (broken,)
    refusals += assessed.label_refusal(model)
    bit = 0 if node is None else world.fleet.bit(node.name)
    there = [pool for pool in pools.allowed if bit & world.fleet.matching(world.joined(pod.constraints, pool))]
    if node is not None and pools.allowed and not there:
        names = ", ".join(pool.name or "the cluster" for pool in pools.allowed)
        text = f"its node {node.name} is in none of the pools that it may enter: {names}"
        refusals += (Reason(Code.NO_POOL_ALLOWED, text),)
    if refusals:
        return Fate(team.name, refusals=refusals)
    return Fate(team.name, assessed.tier(pod.demand, model), there[0].name if there else None)
