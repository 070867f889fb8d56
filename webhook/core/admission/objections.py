"""The reasons that refuse a pod on the nodes that were chosen for it, with advice."""

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.node_choice import ChargedChoice
from webhook.core.admission.unplaced import never_refusal, shortage_of
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
    if choice.notes:
        refused = (_wait_refusal(assessed.pod, note, assessed.pools.allowed, world) for note in choice.notes)
        reasons += tuple(reason for reason in refused if reason is not None)
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
    why = shortage_of(note)
    if note.code is Code.NEVER_FITS and pod.pool is not None:
        return Reason(Code.POOL_UNFIT, "the pod is bound to pool {pool}: {why}", {"pool": pod.pool, "why": why})
    if note.code is Code.NEVER_FITS and pod.requires:
        words, offered = "the pod is bound to pools that offer {offered}: {why}", tuple(sorted(pod.requires))
        return Reason(Code.POOL_UNFIT, words, {"offered": offered, "why": why})
    if pod.pool is not None and not any(pool.is_autoscaled for pool in pools):
        return Reason(Code.POOL_FULL, "the pod is pinned to pool {pool}: {why}", {"pool": pod.pool, "why": why})
    return never_refusal(pod, pools, world) if note.code is Code.NEVER_FITS else None
