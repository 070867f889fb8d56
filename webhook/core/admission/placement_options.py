"""The placement options of a pod: its pools, split where the pod counts differently on some of their nodes.

If a team has shares per GPU model, each model is an option, and the option binds the pod to the model's label. The same
holds for slices under the name of whole GPUs: such a pod counts as a slice only if it is bound to slices.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.external_placement import model_requirements
from webhook.core.model.demand import Demand, in_slices
from webhook.core.model.mig_slices import PRODUCT, slices_of
from webhook.core.model.names import GpuModel
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Mode, Pool
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
        slots = fleet.matching(world.joined(pod.constraints, pool))
        if not slots:
            continue
        sliced = slots & fleet.mig_slots if fleet.mig_slots and pod.demand.own is None else 0
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
    mode = world.policy.placement.mode
    if not (mode is _AUTO or mode is _REQUIRE):
        return mode
    if pod.has_open_constraints or (pod.topology and any(rule.needs_all_nodes for rule in pod.topology)):
        return _PREFER
    for pool in pools:  # one pool, mostly: a loop costs a third of `any`
        if pool.is_autoscaled:
            return _PREFER
    return mode


def merged(options: list[PlacementOption], pod: Pod, assessed: Assessment, world: World) -> PlacementOption | None:
    """Return one option that binds the pod to the slices of all options; None if one is not of slices."""
    pools = {option.pool for option in options}
    if len(pools) != 1 or not all(option.is_sliced for option in options):
        return None
    products = {value for option in options for requirement in option.requirements for value in requirement.values}
    slots = 0
    for option in options:
        slots |= option.slots
    return _sliced(pod, pools.pop(), slots, products=products, assessed=assessed, world=world)


def _by_model(pod: Pod, pool: Pool, slots: int, assessed: Assessment, world: World) -> Iterator[PlacementOption]:
    """Yield one option per GPU model of a pool, for a team with shares per model."""
    mode = mode_for(pod, (pool,), world)
    for (model, label), members in world.fleet.by_model().items():
        if slots & members:
            names = slices_of((model,)) if pod.demand.own is None else ()
            demand = in_slices(pod.demand, names, world.policy.resources)
            tier, required = assessed.tier(demand, model), model_requirements(model, label, world)
            yield PlacementOption(pool, slots & members, demand, tier, mode, model, required, demand is not pod.demand)


def _by_slice(pod: Pod, pool: Pool, slots: int, assessed: Assessment, world: World) -> Iterator[PlacementOption]:
    """Yield the options of a pool: whole GPUs, and the slices of each product.

    If nodes are only preferred, nothing binds the pod to either. It then counts as whole GPUs if it may get one, now or
    from an autoscaler.
    """
    whole = slots & ~world.fleet.mig_slots
    mode = mode_for(pod, (pool,), world)
    is_required = mode in (_AUTO, _REQUIRE)
    if pool.is_autoscaled or (whole and not is_required):
        yield PlacementOption(pool, slots, pod.demand, assessed.tier(pod.demand, None), mode)
        return
    if whole:
        yield PlacementOption(pool, whole, pod.demand, assessed.tier(pod.demand, None), mode)
    members = {model: slots & bits for (model, _), bits in world.fleet.by_model().items()}
    products = {model: bits for model, bits in members.items() if bits & world.fleet.mig_slots}
    if not is_required:
        yield _sliced(pod, pool, slots, products=set(products), assessed=assessed, world=world)
        return
    for product, bits in products.items():
        yield _sliced(pod, pool, bits, products={product}, assessed=assessed, world=world)


def _sliced(
    pod: Pod, pool: Pool, slots: int, *, products: set[str], assessed: Assessment, world: World
) -> PlacementOption:
    demand = in_slices(pod.demand, slices_of(products), world.policy.resources)
    required = (Requirement(PRODUCT, Operator.IN, tuple(sorted(products))),)
    mode = mode_for(pod, (pool,), world)
    return PlacementOption(pool, slots, demand, assessed.tier(demand, None), mode, None, required, is_sliced=True)


def _breaks_limit(option: PlacementOption, assessed: Assessment) -> bool:
    return bool(violations(assessed.request_of(option.demand), assessed.account))
