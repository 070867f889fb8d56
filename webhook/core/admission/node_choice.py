"""Options, then the node.

The place that a node keeps for a pod: it is sent there, and no other pod is (core/model/node.py).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.pools import grows, may_grow
from webhook.core.admission.unplaced import demanded_model, model_requirements, waiting_reason
from webhook.core.model.amounts import ANY_MODEL, GpuModel, NodeName, ResourceName
from webhook.core.model.constraints import HELD, NO_CONSTRAINTS, DomainPlace, Operator, Requirement, Tier, Toleration
from webhook.core.model.decision import NodeChoice
from webhook.core.model.demand import Demand, in_slices
from webhook.core.model.gpu_shares import PRODUCT, REPLICAS, replica_slices, replicas_of, slices_of
from webhook.core.model.node import HOSTNAME, NO_MODEL, controller_key
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.reasons import Reason
from webhook.core.placement.best_nodes import best_nodes, with_distant
from webhook.core.placement.topology_rules import Affinity, TopologyRequest, evaluate_affinity, evaluate_topology
from webhook.core.quota.limits import violations
from webhook.core.world.world import World


class OwnPlace(NamedTuple):
    """A pod as one that tolerates the hold of its node, as the evictor will have it, and that node's slot."""

    pod: Pod
    slot: int


def own_place(pod: Pod, world: World) -> OwnPlace | None:
    """Return the place that is kept for a pod, where there is room for it now; None where there is none."""
    keys: set[str] = {pod.uid} if pod.uid else set()
    if pod.owner is not None:
        keys.add(controller_key(pod.owner.kind, pod.namespace, pod.owner.name))
    for node in filter(None, map(world.fleet.get, sorted(world.keeping))):
        if not any(place.key in keys and place.has_room_for(pod.demand) for place in node.kept):
            continue
        holds = tuple([Toleration(HELD, value=taint.value) for taint in node.taints if taint.key == HELD])
        if world.fleet.fits(node.name, pod.demand):
            constraints = pod.constraints.joined(tolerations=holds)
            return OwnPlace(pod._replace(constraints=constraints), world.fleet.bit(node.name))
    return None


# The placement options of a pod: its pools, split where the pod counts differently on some of their nodes.
#
# If a team has shares per GPU model, each model is an option, and the option binds the pod to the model's label. The
# same holds for slices under the name of whole GPUs: such a pod counts as a slice only if it is bound to slices.


_NO_REQUIREMENTS: Final[tuple[Requirement, ...]] = ()


class PlacementOption(NamedTuple):
    """A pool or a part of its nodes, with the demand and tier there, and how the pod is bound to them.

    `requirements` bind it to the part, `mode` to the chosen nodes.
    """

    pool: Pool
    slots: int
    demand: Demand
    tier: Tier
    mode: Mode
    model: GpuModel | None = None
    requirements: tuple[Requirement, ...] = _NO_REQUIREMENTS
    is_sliced: bool = False


def placement_options(pod: Pod, pools: tuple[Pool, ...], assessed: Assessment, world: World) -> list[PlacementOption]:
    """Return the options whose nodes meet the pod's constraints, full or not.

    Options that would break a limit are left out if one of the others could hold the pod.
    """
    options: list[PlacementOption] = []
    has_slices, fleet = False, world.fleet
    for pool in pools:
        slots = fleet.matching(world.pools.joined(pod.constraints, pool))
        if not slots:
            continue
        sliced = slots & fleet.slices.slots if fleet.slices.slots and pod.demand.own is None else 0
        has_slices = has_slices or bool(sliced)
        if assessed.account.team.has_model_shares:
            options += _by_model(pod, pool, slots, assessed, world)
        elif sliced:
            options += _by_slice(pod, pool, slots, assessed, world)
        else:
            tier = assessed.tier(pod.demand, None)
            options.append(PlacementOption(pool, slots, pod.demand, tier, mode_for(pod, (pool,), world)))
    if has_slices:
        within = [option for option in options if not _breaks_limit(option, assessed)]
        if any(fleet.could_hold(pod.demand, option.slots) for option in within):
            return within
    return options


def mode_for(pod: Pod, pools: tuple[Pool, ...], world: World) -> Mode:
    """Return the placement mode: `prefer` in place of a required node list that could leave the pod without a node.

    That holds for pods with constraints that are not evaluated here or that a node list would change, and for pools
    with an autoscaler: it removes nodes, and it adds none for a pod that is bound to nodes by name.
    """
    rules = world.policy.placement
    mode = rules.mode if pod.gang is None else rules.mode_of(pod.gang)
    if not (mode is Mode.AUTO or mode is Mode.REQUIRE):
        return mode
    if pod.has_open_constraints or (pod.topology and any(rule.needs_all_nodes for rule in pod.topology)):
        return Mode.PREFER
    return Mode.PREFER if may_grow(pools, world) else mode


def merged(options: list[PlacementOption], pod: Pod, assessed: Assessment, world: World) -> PlacementOption | None:
    """Return one option that binds the pod to the slices of all options; None if one is not of slices."""
    if not options[0].is_sliced:
        return None
    pools = {option.pool for option in options}
    labels = {requirement.key for option in options for requirement in option.requirements}
    if len(pools) != 1 or len(labels) != 1 or not all(option.is_sliced for option in options):
        return None
    values = {value for option in options for requirement in option.requirements for value in requirement.values}
    slots = 0
    for option in options:
        slots |= option.slots
    group = _SliceGroup(labels.pop(), frozenset(values), slots)
    return _sliced(pod, pools.pop(), group, assessed=assessed, world=world)


class _SliceGroup(NamedTuple):
    """Nodes of slices that a pod can be bound to by these values of one label."""

    label: str
    values: frozenset[str]
    slots: int

    @property
    def requirement(self) -> Requirement:
        """The requirement that binds a pod to these nodes."""
        return Requirement(self.label, Operator.IN, tuple(sorted(self.values)))

    @property
    def slices(self) -> tuple[ResourceName, ...]:
        """The slices of these nodes."""
        return slices_of(self.values) if self.label == PRODUCT else replica_slices(self.values)


def _slice_groups(slots: int, world: World) -> list[_SliceGroup]:
    """Return the slices of some nodes: MIG devices by product, replicas by their number.

    Replicas are left out if nodes that offer something else have the same label.
    """
    fleet = world.fleet
    members = {model: slots & bits for (model, _), bits in fleet.by_model().items() if slices_of((model,))}
    found = [_SliceGroup(PRODUCT, frozenset((model,)), bits) for model, bits in members.items() if bits]
    for name, bits in fleet.slices.among(slots).items():
        if (number := replicas_of(name)) and fleet.are_replicas(number):
            found.append(_SliceGroup(REPLICAS, frozenset((str(number),)), bits))
    return found


def _by_model(pod: Pod, pool: Pool, slots: int, assessed: Assessment, world: World) -> Iterator[PlacementOption]:
    """Yield the options per GPU model of a pool, for a team with shares per model: slices apart from whole GPUs."""
    mode = mode_for(pod, (pool,), world)
    for (model, label), members in world.fleet.by_model().items():
        whole = slots & members
        if not whole:
            continue
        required = model_requirements(model, label, world)
        groups = _slice_groups(whole, world) if whole & world.fleet.slices.slots and pod.demand.own is None else []
        for group in groups:
            whole &= ~group.slots
        if whole:
            tier = assessed.tier(pod.demand, model)
            yield PlacementOption(pool, whole, pod.demand, tier, mode, model=model, requirements=required)
        for group in groups:
            demand = in_slices(pod.demand, group.slices, world.policy.resources)
            tier, is_sliced = assessed.tier(demand, model), demand is not pod.demand
            bound = required if group.label == label else (*required, group.requirement)
            yield PlacementOption(
                pool, group.slots, demand, tier, mode, model=model, requirements=bound, is_sliced=is_sliced
            )


def _by_slice(pod: Pod, pool: Pool, slots: int, assessed: Assessment, world: World) -> Iterator[PlacementOption]:
    """Yield the options of a pool: whole GPUs, and the slices of each kind.

    If nodes are only preferred, nothing binds the pod to either. It then counts as whole GPUs if it may get one, now or
    from an autoscaler, or slices of several labels.
    """
    groups = _slice_groups(slots, world)
    whole = slots
    for group in groups:
        whole &= ~group.slots
    mode = mode_for(pod, (pool,), world)
    is_required = mode in (Mode.AUTO, Mode.REQUIRE)
    is_bound = is_required or len({group.label for group in groups}) == 1
    if grows(pool, world) or not is_bound or (whole and not is_required):
        yield PlacementOption(pool, slots, pod.demand, assessed.tier(pod.demand, None), mode)
        return
    if whole:
        yield PlacementOption(pool, whole, pod.demand, assessed.tier(pod.demand, None), mode)
    if not is_required:
        values = frozenset(value for group in groups for value in group.values)
        groups = [_SliceGroup(groups[0].label, values, slots)]
    for group in groups:
        yield _sliced(pod, pool, group, assessed=assessed, world=world)


def _sliced(pod: Pod, pool: Pool, group: _SliceGroup, *, assessed: Assessment, world: World) -> PlacementOption:
    demand, mode = in_slices(pod.demand, group.slices, world.policy.resources), mode_for(pod, (pool,), world)
    tier, required = assessed.tier(demand, None), (group.requirement,)
    return PlacementOption(pool, group.slots, demand, tier, mode, requirements=required, is_sliced=True)


def _breaks_limit(option: PlacementOption, assessed: Assessment) -> bool:
    return bool(violations(assessed.request_of(option.demand), assessed.account))


# The choice of pool, GPU model and nodes for a pod.


LISTED_NODES: Final = 4
"""The number of nodes a pod may use: the first is chosen, the others are fallbacks if it is lost meanwhile."""

PREFERRED_NODES: Final = 8
"""The number of nodes that a pod of mode `prefer` is sent to: it may use every other node as well."""

_RANKED: Final = 2
"""The first nodes of a list, which are the best ones; the others are distant."""

_MOST_EXCLUDED: Final = 16
"""Nodes that a pod of mode `prefer` is kept off by name: each makes the pod larger."""


class ChargedChoice(NamedTuple):
    """A node choice with what the pod is charged there, its tier, and notes for its user."""

    node_choice: NodeChoice
    model: GpuModel | None
    notes: tuple[Reason, ...]
    demand: Demand
    tier: Tier


def choose(assessed: Assessment, world: World) -> ChargedChoice | tuple[Reason, ...]:
    """Return the best nodes for a pod in its allowed pools, or the reasons why no pool or model may take it.

    A place that is kept for the pod comes first. If no node with room meets the pod's topology rules, nodes are only
    preferred, as with all constraints that are not evaluated. Topology rules that cost too much to evaluate are left to
    kube-scheduler.
    """
    pod = assessed.pod
    if world.keeping and (own := own_place(pod, world)) is not None:
        choice = _choose(own.pod, assessed, world, among=own.slot)
        if isinstance(choice, ChargedChoice) and (choice.node_choice.nodes or choice.node_choice.expected):
            return choice
    choice = _choose_by_topology(pod, assessed, world) if pod.topology else _choose(pod, assessed, world)
    if isinstance(choice, ChargedChoice) and choice.node_choice.mode is Mode.PREFER and world.rejecting_nodes:
        return choice._replace(node_choice=_off_closed(choice.node_choice, assessed, world))
    return choice


def _choose_by_topology(pod: Pod, assessed: Assessment, world: World) -> ChargedChoice | tuple[Reason, ...]:
    if world.pod_counts.are_costly(pod.namespace, pod.topology):
        world.pod_counts.count_one(pod.namespace, pod.topology)
        pod = pod._replace(topology=(), has_open_constraints=True)
    choice = _choose(pod, assessed, world)
    if pod.has_required_topology and isinstance(choice, ChargedChoice) and not choice.node_choice.nodes:
        return _choose(pod._replace(topology=(), has_open_constraints=True), assessed, world)
    return choice


def _choose(pod: Pod, assessed: Assessment, world: World, *, among: int = -1) -> ChargedChoice | tuple[Reason, ...]:
    team, pools = assessed.account.team, assessed.pools.allowed
    options = placement_options(pod, pools, assessed, world)
    if among >= 0:
        options = [option._replace(slots=option.slots & among) for option in options]
    if not options:
        return _without_nodes(pod, pools, assessed, world)
    refused: list[tuple[PlacementOption, Reason]] = []
    has_model_shares = team.has_model_shares
    if has_model_shares:
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
    placed = _placed(pod, options, affinity, assessed, world)
    if placed:
        if len(placed) > 1:
            placed = [each for each in placed if not each[0].is_sliced] or placed
        option, nodes = placed[0] if len(placed) == 1 else _best(pod, placed, world)
        return ChargedChoice(_node_choice(option, nodes), option.model, (), option.demand, option.tier)
    if has_model_shares and (full := _on_full_models(pod, options, refused, world)):
        return full
    waits = _no_room(pod, options, assessed, world)
    open_to = {option.pool for option in options}
    only = options[0] if has_model_shares else merged(options, pod, assessed, world)
    if only is not None and (has_model_shares or len(pools) == 1):
        return ChargedChoice(_node_choice(only, ()), only.model, (waits,), only.demand, only.tier)
    growing = tuple([pool for pool in pools if pool in open_to or grows(pool, world)])
    tier = assessed.tier(pod.demand, None)
    return ChargedChoice(node_choice_of_pools(pod, growing, world), None, (waits,), pod.demand, tier)


def _without_nodes(
    pod: Pod, pools: tuple[Pool, ...], assessed: Assessment, world: World
) -> ChargedChoice | tuple[Reason, ...]:
    """Return the choice for a pod that no node matches: a later node may have any GPU model its constraints allow."""
    model = None
    if assessed.team.has_model_shares:
        wanted = {demanded_model(world.pools.joined(pod.constraints, pool), world) for pool in pools}
        model = (wanted.pop() if len(wanted) == 1 else None) or ANY_MODEL
        if refusal := assessed.model_refusal(pod.demand, model):
            return (refusal,)
    choice, waits = node_choice_of_pools(pod, pools, world), _no_room(pod, [], assessed, world)
    return ChargedChoice(choice, model, (waits,), pod.demand, assessed.tier(pod.demand, model))


def _on_full_models(
    pod: Pod, options: list[PlacementOption], refused: list[tuple[PlacementOption, Reason]], world: World
) -> tuple[Reason, ...]:
    """Return the refusals if only nodes of GPU models at their limit could hold the pod."""
    able = world.fleet.could_hold
    if any(able(pod.demand, option.slots) for option in options):
        return ()
    return tuple(dict.fromkeys(why for option, why in refused if able(pod.demand, option.slots)))


def _placed(
    pod: Pod, options: list[PlacementOption], affinity: Affinity | None, assessed: Assessment, world: World
) -> list[tuple[PlacementOption, tuple[NodeName, ...]]]:
    """Return the options with room, and their nodes: nodes that reject pods last, or not at all.

    Nodes with a taint PreferNoSchedule come after those without: kube-scheduler weighs that, names do not.
    """
    fleet, soft = world.fleet, 0
    if not (fleet.labels.preferences or world.rejecting_nodes):
        return [(option, nodes) for option in options if (nodes := _place(pod, option, affinity, world))]
    for option in options:
        soft |= option.slots & fleet.labels.discouraged(world.pools.joined(pod.constraints, option.pool))
    closed, last, _ = world.rejecting_nodes.avoided(assessed.team.name, pod, fleet)
    for avoided in dict.fromkeys((closed | last | soft, closed | last, closed | soft, closed)):
        rest = [option._replace(slots=option.slots & ~avoided) for option in options]
        placed = [(option, nodes) for option in rest if (nodes := _place(pod, option, affinity, world))]
        if placed:
            return placed
    return []


def _off_closed(choice: NodeChoice, assessed: Assessment, world: World) -> NodeChoice:
    """Return a choice of preferred nodes that keeps the pod off those that reject its team's: others may be used."""
    closed = world.rejecting_nodes.avoided(assessed.team.name, assessed.pod, world.fleet).closed
    nodes = (world.fleet.get(name) for name in world.fleet.names_of(closed)[:_MOST_EXCLUDED])
    names = tuple(name for node in nodes if node is not None and (name := node.labels.get(HOSTNAME)))
    if not names:
        return choice
    elsewhere = Requirement(HOSTNAME, Operator.NOT_IN, names)
    return choice._replace(pool_terms=tuple((*term, elsewhere) for term in choice.pool_terms or ((),)))


def _place(pod: Pod, option: PlacementOption, affinity: Affinity | None, world: World) -> tuple[NodeName, ...]:
    is_list = option.mode is Mode.AUTO and not pod.is_spread_by_default
    ranked = _RANKED if is_list else PREFERRED_NODES if option.mode is Mode.PREFER else 1
    if affinity is None:
        return _best_of(option.slots, pod, option, ranked, world, listed=LISTED_NODES if is_list else 0)
    nodes, slots = _place_by_topology(pod, option, affinity, ranked, world)
    return with_distant(world.fleet, pod.demand, slots, nodes, count=LISTED_NODES) if is_list else nodes


class _Ranked(NamedTuple):
    """The best nodes, and the slots of which fallbacks may be taken."""

    nodes: tuple[NodeName, ...]
    slots: int


def _place_by_topology(pod: Pod, option: PlacementOption, affinity: Affinity, count: int, world: World) -> _Ranked:
    """Return the best node that meets the topology rules, and equally good fallbacks in its domains."""
    fleet, constraints = world.fleet, world.pools.joined(pod.constraints, option.pool)
    if option.requirements:
        constraints = constraints.joined(requirements=option.requirements)
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, constraints)
    spread = evaluate_topology(request, fleet, world.pod_counts, affinity)
    slots = spread.narrowed(option.slots & fleet.open_bits, lambda among: fleet.with_room(pod.demand, among))
    first = _best_of(slots, pod, option, 1, world)
    if not first or count == 1:
        return _Ranked(first, 0)
    bit = fleet.bit(first[0])
    slots &= spread.beside(bit.bit_length() - 1) & ~bit
    return _Ranked(first + _best_of(slots, pod, option, count - 1, world), slots)


def _best_of(
    slots: int, pod: Pod, option: PlacementOption, count: int, world: World, *, listed: int = 0
) -> tuple[NodeName, ...]:
    return best_nodes(
        world.fleet,
        pod.demand,
        slots,
        count=count,
        tier=option.tier,
        keep_whole=world.policy.placement.keep_whole,
        listed=listed,
    )


def _best(
    pod: Pod, placed: list[tuple[PlacementOption, tuple[NodeName, ...]]], world: World
) -> tuple[PlacementOption, tuple[NodeName, ...]]:
    """Compare the best node of each option in one ranking, by the tier of the first option; return the winner."""
    firsts = 0
    for _, nodes in placed:
        firsts |= world.fleet.bit(nodes[0])
    winner = best_nodes(world.fleet, pod.demand, firsts, count=1, tier=placed[0][0].tier)
    return next((option, nodes) for option, nodes in placed if nodes[0] in winner)


def _node_choice(option: PlacementOption, nodes: tuple[NodeName, ...]) -> NodeChoice:
    pool, mode = option.pool, option.mode
    terms = pool.affinity + option.requirements
    nodes, expected = ((), nodes) if mode is Mode.OFF else (nodes, ())
    bound = (terms,) if terms else ()
    return NodeChoice(mode, nodes, pool.name or None, pool.node_selector, bound, pool.tolerations, expected=expected)


def in_domain(choice: NodeChoice, place: DomainPlace) -> NodeChoice:
    """Return a choice that says in which domain it is, and binds the pod to a required one if no nodes by name do."""
    if place.is_required and not (choice.nodes and choice.mode in (Mode.AUTO, Mode.REQUIRE)):
        terms = tuple(term + place.requirements for term in choice.pool_terms or ((),))
        choice = choice._replace(pool_terms=terms)
    return choice._replace(domain=place)


def choice_of_node(pod: Pod, node: NodeName, pools: tuple[Pool, ...], world: World) -> NodeChoice:
    """Return the choice of one node that was charged already; only of the pools if none of them has the node."""
    bit = world.fleet.bit(node)
    for pool in pools:
        if world.fleet.matching(world.pools.joined(pod.constraints, pool)) & bit:
            option = PlacementOption(pool, bit, pod.demand, Tier.GUARANTEED, mode_for(pod, (pool,), world))
            return _node_choice(option, (node,))
    return node_choice_of_pools(pod, pools, world)


def node_choice_of_pools(pod: Pod, pools: tuple[Pool, ...], world: World) -> NodeChoice:
    """Return a choice of pools without nodes; several become node affinity terms, since selectors cannot be ORed."""
    if len(pools) == 1:
        return _node_choice(PlacementOption(pools[0], 0, pod.demand, Tier.GUARANTEED, mode_for(pod, pools, world)), ())
    alternatives = tuple(
        tuple(Requirement(key, Operator.IN, (value,)) for key, value in pool.node_selector) + pool.affinity
        for pool in pools
    )
    return NodeChoice(
        mode=mode_for(pod, pools, world),
        pool_terms=alternatives if all(alternatives) else (),
        tolerations=tuple(dict.fromkeys(t for pool in pools for t in pool.tolerations)),
    )


def _no_room(pod: Pod, options: list[PlacementOption], assessed: Assessment, world: World) -> Reason:
    slots = 0
    for option in options:
        slots |= option.slots
    return waiting_reason(pod, assessed.pools.allowed, slots, world, team=assessed.team.name)
