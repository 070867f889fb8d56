"""Choose pool, model and nodes for a pod, and say it as a Steering."""

from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.elsewhere import demanded_model
from webhook.core.admission.sites import Site, joined, mode_for, sites_of
from webhook.core.admission.unplaced import waiting_reason
from webhook.core.model.decision import Steering
from webhook.core.model.demand import Demand
from webhook.core.model.names import ANY_MODEL, GpuModel, NodeName
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.reason import Reason
from webhook.core.model.selector import NO_CONSTRAINTS, Operator, Requirement
from webhook.core.model.tier import Tier
from webhook.core.peers.topology_filter import Affinity, TopologyRequest, evaluate_affinity, evaluate_topology
from webhook.core.placement.placement import best_nodes
from webhook.core.world.world import World

LISTED_NODES: Final = 8
"""Nodes a pod may go to: the first is bound, the others are the way out when it fills up meanwhile."""

LISTED_NODES_BARE: Final = 32
"""The same for a bare pod, which nobody makes again if all of its nodes are gone."""

_AUTO, _REQUIRE, _PREFER, _OFF = Mode.AUTO, Mode.REQUIRE, Mode.PREFER, Mode.OFF  # one look costs 0.1 us


class Choice(NamedTuple):
    """Where a pod goes: the steering, the model charged, what there is to say about it, and what it counts there."""

    steering: Steering
    model: GpuModel | None
    notes: tuple[Reason, ...]
    demand: Demand


def choose(assessed: Assessment, world: World) -> Choice | tuple[Reason, ...]:
    """Return the best nodes for a pod in the pools open to it; the reasons where no pool or model may take it at all.

    Where no node with room has the pods around it that it demands, nodes are only preferred, as with all conditions
    that are not judged. Conditions on other pods that cost too much to judge are left to kube-scheduler.
    """
    pod, pools = assessed.pod, assessed.pools.allowed
    if pod.topology and world.pod_counts.are_costly(pod.namespace, pod.topology):
        world.pod_counts.count_one(pod.namespace, pod.topology)
        pod = pod._replace(topology=(), has_open_constraints=True)
    choice = _choose(pod, pools, assessed, world)
    if pod.topology and pod.has_required_topology and isinstance(choice, Choice) and not choice.steering.nodes:
        return _choose(pod._replace(topology=(), has_open_constraints=True), pools, assessed, world)
    return choice


def _choose(pod: Pod, pools: tuple[Pool, ...], assessed: Assessment, world: World) -> Choice | tuple[Reason, ...]:
    team = assessed.account.team
    sites = sites_of(pod, pools, assessed, world)
    if not sites:
        return _nowhere_yet(pod, pools, assessed, world)
    refused: list[tuple[Site, Reason]] = []
    if team.models:
        refusals = [assessed.model_refusal(site.demand, site.model or NO_MODEL) for site in sites]
        refused = [(site, why) for site, why in zip(sites, refusals, strict=True) if why is not None]
        sites = [site for site, why in zip(sites, refusals, strict=True) if why is None]
        if not sites:
            return tuple(dict.fromkeys(why for _, why in refused))
    affinity = None
    if pod.topology or world.pod_counts.against(pod.namespace, pod.labels):
        affinity = evaluate_affinity(
            TopologyRequest(pod.namespace, pod.labels, pod.topology, NO_CONSTRAINTS), world.fleet, world.pod_counts
        )
    placed = [(site, nodes) for site in sites if (nodes := _place(pod, site, affinity, world))]
    if placed:
        placed = [each for each in placed if not each[0].is_sliced] or placed
        site, nodes = placed[0] if len(placed) == 1 else _best(pod, placed, world)
        return Choice(_steering(pod, site, nodes, world), site.model, (), site.demand)
    if team.models and (full := _on_full_models(pod, sites, refused, world)):
        return full
    waits = _no_room(pod, pools, sites, world)
    open_to = {site.pool for site in sites}
    only = sites[0] if team.models else joined(sites, pod, assessed, world)
    if only is not None and (team.models or len(pools) == 1):
        return Choice(_steering(pod, only, (), world), only.model, (waits,), only.demand)
    growing = tuple(pool for pool in pools if pool in open_to or pool.is_autoscaled)
    return Choice(towards(pod, growing, world), None, (waits,), pod.demand)


def _nowhere_yet(pod: Pod, pools: tuple[Pool, ...], assessed: Assessment, world: World) -> Choice | tuple[Reason, ...]:
    """Let a pod wait that no node meets: a node that comes may have any GPU model that its conditions leave open."""
    model = None
    if assessed.team.models:
        wanted = {demanded_model(world.joined(pod.constraints, pool), world) for pool in pools}
        model = (wanted.pop() if len(wanted) == 1 else None) or ANY_MODEL
        if refusal := assessed.model_refusal(pod.demand, model):
            return (refusal,)
    return Choice(towards(pod, pools, world), model, (_no_room(pod, pools, [], world),), pod.demand)


def _on_full_models(
    pod: Pod, sites: list[Site], refused: list[tuple[Site, Reason]], world: World
) -> tuple[Reason, ...]:
    """Refuse a pod that only nodes of GPU models could hold whose limit leaves no room for it."""
    able = world.fleet.with_capacity
    if any(able(pod.demand, site.slots) for site in sites):
        return ()
    return tuple(dict.fromkeys(why for site, why in refused if able(pod.demand, site.slots)))


def _place(pod: Pod, site: Site, affinity: Affinity | None, world: World) -> tuple[NodeName, ...]:
    count = _length(pod, site, world)
    if affinity is not None:
        return _place_apart(pod, site, affinity, count, world)
    return _best_of(site.slots, pod, site, count, world)


def _place_apart(pod: Pod, site: Site, affinity: Affinity, count: int, world: World) -> tuple[NodeName, ...]:
    """Place a pod to which the pods around it matter: on the best node that has it so, or another that is no worse."""
    fleet, constraints = world.fleet, world.joined(pod.constraints, site.pool)
    if site.requirements:
        constraints = constraints.joined(requirements=site.requirements)
    asker = TopologyRequest(pod.namespace, pod.labels, pod.topology, constraints)
    spread = evaluate_topology(asker, fleet, world.pod_counts, affinity)
    slots = spread.narrowed(site.slots & fleet.open_bits, lambda among: fleet.with_room(pod.demand, among))
    first = _best_of(slots, pod, site, 1, world)
    if not first or count == 1:
        return first
    bit = fleet.bit(first[0])
    return first + _best_of(slots & spread.beside(bit.bit_length() - 1) & ~bit, pod, site, count - 1, world)


def _best_of(slots: int, pod: Pod, site: Site, count: int, world: World) -> tuple[NodeName, ...]:
    return best_nodes(
        world.fleet,
        pod.demand,
        slots,
        count=count,
        tier=site.tier,
        keep_whole=world.policy.placement.keep_whole,
    )


def _length(pod: Pod, site: Site, world: World) -> int:
    mode = mode_for(pod, (site.pool,), world)
    if mode is _REQUIRE or (mode is _AUTO and pod.is_spread_by_default):
        return 1
    return LISTED_NODES_BARE if pod.owner is None else LISTED_NODES


def _best(pod: Pod, placed: list[tuple[Site, tuple[NodeName, ...]]], world: World) -> tuple[Site, tuple[NodeName, ...]]:
    """Compare the best node of each site in one ranking, that of the first one's tier; its own site wins."""
    firsts = 0
    for _, nodes in placed:
        firsts |= world.fleet.bit(nodes[0])
    winner = best_nodes(world.fleet, pod.demand, firsts, count=1, tier=placed[0][0].tier)
    return next((site, nodes) for site, nodes in placed if nodes[0] in winner)


def _steering(pod: Pod, site: Site, nodes: tuple[NodeName, ...], world: World) -> Steering:
    pool = site.pool
    terms = pool.affinity + site.requirements
    mode = mode_for(pod, (pool,), world)
    nodes = () if mode is _OFF else nodes
    return Steering(mode, nodes, pool.name or None, pool.node_selector, (terms,) if terms else (), pool.tolerations)


def towards(pod: Pod, pools: tuple[Pool, ...], world: World) -> Steering:
    """Steer to pools without naming nodes; several are alternatives of the node affinity: selectors cannot be ORed."""
    if len(pools) == 1:
        return _steering(pod, Site(pools[0], 0, pod.demand, Tier.GUARANTEED), (), world)
    alternatives = tuple(
        tuple(Requirement(key, Operator.IN, (value,)) for key, value in pool.node_selector) + pool.affinity
        for pool in pools
    )
    return Steering(
        mode=mode_for(pod, pools, world),
        pool_terms=alternatives if all(alternatives) else (),
        tolerations=tuple(dict.fromkeys(t for pool in pools for t in pool.tolerations)),
    )


def _no_room(pod: Pod, pools: tuple[Pool, ...], sites: list[Site], world: World) -> Reason:
    slots = 0
    for site in sites:
        slots |= site.slots
    return waiting_reason(pod, pools, slots, world)
