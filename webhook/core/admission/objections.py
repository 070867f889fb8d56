"""The reasons that refuse a pod on the nodes that were chosen for it, with advice."""

from collections import Counter, defaultdict

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.node_choice import ChargedChoice
from webhook.core.admission.pools import may_grow
from webhook.core.admission.unplaced import could_hold, never_refusal, shortage_of
from webhook.core.model.names import NodeName, ResourceName
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World


def refusals(assessed: Assessment) -> tuple[Reason, ...]:
    """Return the reasons that refuse a pod on every node."""
    refusal = assessed.pools.refusal
    return assessed.broken if refusal is None else (*assessed.broken, refusal)


def reasons_against(
    assessed: Assessment, choice: ChargedChoice | tuple[Reason, ...], world: World
) -> tuple[Reason, ...]:
    """Return the reasons that refuse a pod now, by a choice for it or by the reasons why there is none."""
    if not isinstance(choice, ChargedChoice):
        return refusals(assessed) + assessed.label_refusal(None) + choice
    return objections(assessed.with_demand(choice.demand, world.policy), choice, world)


def objections(assessed: Assessment, choice: ChargedChoice, world: World) -> tuple[Reason, ...]:
    """Return the reasons that refuse a choice; if the tier label is the only one, add what happens without it."""
    reasons = refusals(assessed)
    for note in choice.notes:
        if (refusal := _wait_refusal(assessed.pod, note, assessed.pools.allowed, world)) is not None:
            reasons = (*reasons, refusal)
    if assessed.pod.tier_label is None:
        return reasons
    label = assessed.label_refusal(choice.model)
    return reasons + (label if reasons else tuple(_with_borrow_advice(reason, choice) for reason in label))


def _with_borrow_advice(reason: Reason, choice: ChargedChoice) -> Reason:
    """Add to the reason that the pod would be admitted without its tier label."""
    if reason.code is not Code.GUARANTEED_SHARE_USED:
        return reason
    words = (
        "{refusal}; without label fairgate.dev/tier it would be admitted as preemptible, and borrow idle GPUs once "
        "nodes have room"
        if choice.notes
        else "{refusal}; without label fairgate.dev/tier it would be admitted as preemptible, and borrow idle GPUs now"
    )
    return Reason(reason.code, words, {"refusal": reason.statement})


def _wait_refusal(pod: Pod, note: Reason, pools: tuple[Pool, ...], world: World) -> Reason | None:
    """Return the refusal of a pod that must not wait: its pinned pool is full, or no node can ever hold it."""
    never_fits = note.code is Code.NEVER_FITS
    if never_fits and pod.pool is not None:
        facts = {"pool": pod.pool, "why": shortage_of(note)}
        return Reason(Code.POOL_UNFIT, "the pod is bound to pool {pool}: {why}", facts)
    if never_fits and pod.requires:
        facts = {"offered": tuple(sorted(pod.requires)), "why": shortage_of(note)}
        return Reason(Code.POOL_UNFIT, "the pod is bound to pools that offer {offered}: {why}", facts)
    if pod.pool is not None and not may_grow(pools, world) and not _has_room_soon(pod, pools, world):
        facts = {"pool": pod.pool, "why": shortage_of(note)}
        return Reason(Code.POOL_FULL, "the pod is pinned to pool {pool}: {why}", facts)
    return never_refusal(pod, pools, world) if never_fits else None


def _has_room_soon(pod: Pod, pools: tuple[Pool, ...], world: World) -> bool:
    """Whether some node has the pod's room but for what pods deleted by force may still use: that has a known end."""
    lingering: dict[NodeName, Counter[ResourceName]] = defaultdict(Counter)
    for usage in world.usage_by_team().values():
        for left in filter(None, map(world.pod, usage.lingering_uids())):
            if left.node is not None:
                lingering[left.node].update(dict(left.demand.requests))
    able = could_hold(pod, pools, world) & world.fleet.open_bits if lingering else 0
    return any(
        able & world.fleet.bit(node)
        and all(world.fleet.free(node, name) + ends[name] >= amount for name, amount in pod.demand.requests)
        for node, ends in lingering.items()
    )
