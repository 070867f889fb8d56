"""The choice of pool, GPU model and nodes for a pod, as a Steering."""

from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.elsewhere import demanded_model
from webhook.core.admission.sites import PlacementOption, merged, mode_for, placement_options
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
"""The number of nodes a pod may use: the first is chosen, the others are fallbacks if it fills up meanwhile."""

LISTED_NODES_BARE: Final = 32
"""The same for a bare pod: no controller replaces it if all of its nodes are gone."""

_AUTO, _REQUIRE, _PREFER, _OFF = Mode.AUTO, Mode.REQUIRE, Mode.PREFER, Mode.OFF  # access costs 0.1 us


class Choice(NamedTuple):
    """The node choice for a pod: steering, charged model, notes, and the demand counted there."""

    steering: Steering
    model: GpuModel | None
    notes: tuple[Reason, ...]
    demand: Demand


def choose(assessed: Assessment, world: World) -> Choice | tuple[Reason, ...]:
    """Return the best nodes for a pod in its allowed pools, or the reasons why no pool or model may take it.

    If no node with room meets the pod's topology rules, nodes are only preferred, as with all constraints that are not
    evaluated. Topology rules that cost too much to evaluate are left to kube-scheduler.
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
    options = placement_options(pod, pools, assessed, world)
    if not options:
        return _without_nodes(pod, pools, assessed, world)
    refused: list[tuple[PlacementOption, Reason]] = []
    if team.models:
        refusals = [assessed.model_refusal(option.demand, option.model or NO_MODEL) for option in options]
        refused = [(option, why) for option, why in zip(options, refusals, strict=True) if why is not None]
        options = [option for option, why in zip(options, refusals, strict=True) if why is None]
        if not options:
            return tuple(dict.fromkeys(why for _, why in refused))
    affinity = None
    if pod.topology or world.pod_counts.against(pod.namespace, pod.labels):
        affinity = evaluate_affinity(
            TopologyRequest(pod.namespace, pod.labels, pod.topology, NO_CONSTRAINTS), world.fleet, world.pod_counts
        )
    placed = [(option, nodes) for option in options if (nodes := _place(pod, option, affinity, world))]
    if placed:
        placed = [each for each in placed if not each[0].is_sliced] or placed
        option, nodes = placed[0] if len(placed) == 1 else _best(pod, placed, world)
        return Choice(_steering(pod, option, nodes, world), option.model, (), option.demand)
    if team.models and (full := _on_full_models(pod, options, refused, world)):
        return full
    waits = _no_room(pod, pools, options, world)
    open_to = {option.pool for option in options}
    only = options[0] if team.models else merged(options, pod, assessed, world)
    if only is not None and (team.models or len(pools) == 1):
        return Choice(_steering(pod, only, (), world), only.model, (waits,), only.demand)
    growing = tuple(pool for pool in pools if pool in open_to or pool.is_autoscaled)
    return Choice(steering_to_pools(pod, growing, world), None, (waits,), pod.demand)


def _without_nodes(
    pod: Pod, pools: tuple[Pool, ...], assessed: Assessment, world: World
) -> Choice | tuple[Reason, ...]:
    """Return the choice for a pod that no node matches: a later node may have any GPU model its constraints allow."""
    model = None
    if assessed.team.models:
        wanted = {demanded_model(world.joined(pod.constraints, pool), world) for pool in pools}
        model = (wanted.pop() if len(wanted) == 1 else None) or ANY_MODEL
        if refusal := assessed.model_refusal(pod.demand, model):
            return (refusal,)
    return Choice(steering_to_pools(pod, pools, world), model, (_no_room(pod, pools, [], world),), pod.demand)


def _on_full_models(
    pod: Pod, options: list[PlacementOption], refused: list[tuple[PlacementOption, Reason]], world: World
) -> tuple[Reason, ...]:
    """Return the refusals if only nodes of GPU models at their limit could hold the pod."""
    able = world.fleet.with_capacity
    if any(able(pod.demand, option.slots) for option in options):
        return ()
    return tuple(dict.fromkeys(why for option, why in refused if able(pod.demand, option.slots)))


def _place(pod: Pod, option: PlacementOption, affinity: Affinity | None, world: World) -> tuple[NodeName, ...]:
    count = _node_count(pod, option, world)
    if affinity is not None:
        return _place_by_topology(pod, option, affinity, count, world)
    return _best_of(option.slots, pod, option, count, world)


def _place_by_topology(
    pod: Pod, option: PlacementOption, affinity: Affinity, count: int, world: World
) -> tuple[NodeName, ...]:
    """Return the best node that meets the topology rules, and equally good fallbacks in its domains."""
    fleet, constraints = world.fleet, world.joined(pod.constraints, option.pool)
    if option.requirements:
        constraints = constraints.joined(requirements=option.requirements)
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, constraints)
    spread = evaluate_topology(request, fleet, world.pod_counts, affinity)
    slots = spread.narrowed(option.slots & fleet.open_bits, lambda among: fleet.with_room(pod.demand, among))
    first = _best_of(slots, pod, option, 1, world)
    if not first or count == 1:
        return first
    bit = fleet.bit(first[0])
    return first + _best_of(slots & spread.beside(bit.bit_length() - 1) & ~bit, pod, option, count - 1, world)


def _best_of(slots: int, pod: Pod, option: PlacementOption, count: int, world: World) -> tuple[NodeName, ...]:
    return best_nodes(
        world.fleet,
        pod.demand,
        slots,
        count=count,
        tier=option.tier,
        keep_whole=world.policy.placement.keep_whole,
    )


def _node_count(pod: Pod, option: PlacementOption, world: World) -> int:
    mode = mode_for(pod, (option.pool,), world)
    if mode is _REQUIRE or (mode is _AUTO and pod.is_spread_by_default):
        return 1
    return LISTED_NODES_BARE if pod.owner is None else LISTED_NODES


def _best(
    pod: Pod, placed: list[tuple[PlacementOption, tuple[NodeName, ...]]], world: World
) -> tuple[PlacementOption, tuple[NodeName, ...]]:
    """Compare the best node of each option in one ranking, by the tier of the first option; return the winner."""
    firsts = 0
    for _, nodes in placed:
        firsts |= world.fleet.bit(nodes[0])
    winner = best_nodes(world.fleet, pod.demand, firsts, count=1, tier=placed[0][0].tier)
    return next((option, nodes) for option, nodes in placed if nodes[0] in winner)


def _steering(pod: Pod, option: PlacementOption, nodes: tuple[NodeName, ...], world: World) -> Steering:
    pool = option.pool
    terms = pool.affinity + option.requirements
    mode = mode_for(pod, (pool,), world)
    nodes = () if mode is _OFF else nodes
    return Steering(mode, nodes, pool.name or None, pool.node_selector, (terms,) if terms else (), pool.tolerations)


def steering_to_pools(pod: Pod, pools: tuple[Pool, ...], world: World) -> Steering:
    """Return a steering to pools that names no node; several are node affinity terms: selectors cannot be ORed."""
    if len(pools) == 1:
        return _steering(pod, PlacementOption(pools[0], 0, pod.demand, Tier.GUARANTEED), (), world)
    alternatives = tuple(
        tuple(Requirement(key, Operator.IN, (value,)) for key, value in pool.node_selector) + pool.affinity
        for pool in pools
    )
    return Steering(
        mode=mode_for(pod, pools, world),
        pool_terms=alternatives if all(alternatives) else (),
        tolerations=tuple(dict.fromkeys(t for pool in pools for t in pool.tolerations)),
    )


def _no_room(pod: Pod, pools: tuple[Pool, ...], options: list[PlacementOption], world: World) -> Reason:
    slots = 0
    for option in options:
        slots |= option.slots
    return waiting_reason(pod, pools, slots, world)
