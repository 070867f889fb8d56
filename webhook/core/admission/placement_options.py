"""The placement options of a pod: its pools, split where the pod counts differently on some of their nodes.

If a team has shares per GPU model, each model is an option, and the option binds the pod to the model's label. The same
holds for slices under the name of whole GPUs: such a pod counts as a slice only if it is bound to slices.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.external_placement import model_requirements
from webhook.core.admission.pools import grows, may_grow
from webhook.core.model.demand import Demand, in_slices
from webhook.core.model.mig_slices import PRODUCT, slices_of
from webhook.core.model.names import GpuModel, ResourceName
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.replicas import REPLICAS, replica_slices, replicas_of
from webhook.core.model.selector import Operator, Requirement
from webhook.core.model.tier import Tier
from webhook.core.quota.limits import violations
from webhook.core.world.world import World

_NO_REQUIREMENTS: Final[tuple[Requirement, ...]] = ()
_AUTO, _REQUIRE, _PREFER = Mode.AUTO, Mode.REQUIRE, Mode.PREFER  # access to an enum member costs 0.1 us


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
    mode = world.policy.placement.mode_of(pod.gang)
    if not (mode is _AUTO or mode is _REQUIRE):
        return mode
    if pod.has_open_constraints or (pod.topology and any(rule.needs_all_nodes for rule in pod.topology)):
        return _PREFER
    return _PREFER if may_grow(pools, world) else mode


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
    is_required = mode in (_AUTO, _REQUIRE)
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
