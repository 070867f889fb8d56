"""The ways to place a pod: its pools, cut into parts where it counts differently on some of their nodes.

Where a team has shares per GPU model, each model is a site of its own, and the pod is bound to its label. So it is with
slices under the name of whole GPUs: a pod that says nothing of them counts a slice only if it is bound to slices.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.elsewhere import pinned_to
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


class Site(NamedTuple):
    """One way to place the pod: a pool or some of its nodes, what it counts there, and what binds it to them."""

    pool: Pool
    slots: int
    demand: Demand
    tier: Tier
    model: GpuModel | None = None
    requirements: tuple[Requirement, ...] = _NO_REQUIREMENTS
    is_sliced: bool = False


def sites_of(pod: Pod, pools: tuple[Pool, ...], assessed: Assessment, world: World) -> list[Site]:
    """List the sites that have nodes which meet the pod's conditions, full or not.

    Those where it would break a limit are left out, as long as one of the others could hold it.
    """
    sites: list[Site] = []
    is_cut = False
    for pool in pools:
        slots = world.fleet.matching(world.joined(pod.constraints, pool))
        if not slots:
            continue
        sliced = slots & world.fleet.mig_slots if world.fleet.mig_slots and pod.demand.own is None else 0
        is_cut = is_cut or bool(sliced)
        if assessed.account.team.models:
            sites += _by_model(pod, pool, slots, assessed, world)
        elif sliced:
            sites += _by_slice(pod, pool, slots, assessed, world)
        else:
            sites.append(Site(pool, slots, pod.demand, assessed.tier(pod.demand, None)))
    if is_cut:
        within = [site for site in sites if not _breaks(site, assessed)]
        if any(world.fleet.with_capacity(pod.demand, site.slots) for site in within):
            return within
    return sites


def mode_for(pod: Pod, pools: tuple[Pool, ...], world: World) -> Mode:
    """Soften the mode where a firm list could leave a pod no node at all.

    That is for pods with conditions that we do not evaluate or that a list would change, and where an autoscaler takes
    nodes away and looks for pods that a new node would help: one that may only go to nodes by name is none of them.
    """
    mode = world.policy.placement.mode
    is_firm = mode is Mode.AUTO or mode is Mode.REQUIRE
    if is_firm and pod.topology and any(rule.needs_all_nodes for rule in pod.topology):
        return Mode.PREFER
    return Mode.PREFER if is_firm and (pod.has_open_constraints or any(p.is_autoscaled for p in pools)) else mode


def joined(sites: list[Site], pod: Pod, assessed: Assessment, world: World) -> Site | None:
    """Join sites of slices into one that binds the pod to any of them; None where they are more than slices."""
    pools = {site.pool for site in sites}
    if len(pools) != 1 or not all(site.is_sliced for site in sites):
        return None
    products = {value for site in sites for requirement in site.requirements for value in requirement.values}
    slots = 0
    for site in sites:
        slots |= site.slots
    return _sliced(pod, pools.pop(), slots, products=products, assessed=assessed, world=world)


def _by_model(pod: Pod, pool: Pool, slots: int, assessed: Assessment, world: World) -> Iterator[Site]:
    """Cut a pool by model, for a team with shares per model."""
    for (model, label), members in world.fleet.by_model().items():
        if slots & members:
            names = slices_of((model,)) if pod.demand.own is None else ()
            demand = in_slices(pod.demand, names, world.policy.resources)
            tier, pinned = assessed.tier(demand, model), pinned_to(model, label, world)
            yield Site(pool, slots & members, demand, tier, model, pinned, demand is not pod.demand)


def _by_slice(pod: Pod, pool: Pool, slots: int, assessed: Assessment, world: World) -> Iterator[Site]:
    """Cut a pool into whole GPUs and slices of each product.

    Where the pod's nodes are only a wish, nothing else binds it to either: then it counts whole GPUs if it may get one,
    now or from an autoscaler.
    """
    whole = slots & ~world.fleet.mig_slots
    is_firm = mode_for(pod, (pool,), world) in (Mode.AUTO, Mode.REQUIRE)
    if pool.is_autoscaled or (whole and not is_firm):
        yield Site(pool, slots, pod.demand, assessed.tier(pod.demand, None))
        return
    if whole:
        yield Site(pool, whole, pod.demand, assessed.tier(pod.demand, None))
    members = {model: slots & bits for (model, _), bits in world.fleet.by_model().items()}
    products = {model: bits for model, bits in members.items() if bits & world.fleet.mig_slots}
    if not is_firm:
        yield _sliced(pod, pool, slots, products=set(products), assessed=assessed, world=world)
        return
    for product, bits in products.items():
        yield _sliced(pod, pool, bits, products={product}, assessed=assessed, world=world)


def _sliced(pod: Pod, pool: Pool, slots: int, *, products: set[str], assessed: Assessment, world: World) -> Site:
    demand = in_slices(pod.demand, slices_of(products), world.policy.resources)
    pinned = (Requirement(PRODUCT, Operator.IN, tuple(sorted(products))),)
    return Site(pool, slots, demand, assessed.tier(demand, None), None, pinned, is_sliced=True)


def _breaks(site: Site, assessed: Assessment) -> bool:
    return bool(violations(assessed.request_of(site.demand), assessed.account))
