"""The mutating step: what terms and which nodes a pod would get now.

Order: demand, exempt?, team, limits, pools, tier, place. Pure advice: the same pod, world and policy give the same
decision, nothing is charged, and a pod that carries an intact decision already is left as it is.
"""

from functools import lru_cache
from typing import NamedTuple

from webhook.core.admission.node_choice import Choice, choose, towards
from webhook.core.admission.pools import Pools, allowed_pools
from webhook.core.admission.preflight import NO_GPU, Standing, recounted, standing
from webhook.core.admission.resolve_demand import count
from webhook.core.admission.unplaced import never_refusal
from webhook.core.admission.verification import verify
from webhook.core.model import decision_annotation as marks
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.model.names import GpuModel, TeamName
from webhook.core.model.pod import Handling, Pod, Requester
from webhook.core.model.policy import Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.quota.limits import guaranteed_violation, has_guaranteed_room, tier_for
from webhook.core.world.world import World

_GUARANTEED, _PREEMPTIBLE = Tier.GUARANTEED, Tier.PREEMPTIBLE  # a look at an enum's member costs 0.1 us
_SETTLED = Reason(Code.ALREADY_DECIDED, "the pod carries an intact decision")


def admit(pod: Pod, requester: Requester, world: World) -> Decision:
    """Decide on what terms and where a new pod may run."""
    if pod.needs_resolution:
        counted = count(pod, requester, world)
        if not isinstance(counted, Pod):
            return counted
        pod = counted
    if pod.mark is not None:
        settled = verify(pod, requester, world)
        if isinstance(settled, Admit):
            return NotApplicable(_SETTLED, settled.charge)
        mark = marks.read(pod.mark)
        pod = pod._replace(mark=None, tier_label=None if mark is None else mark.asked)
    found = standing(pod, requester, world)
    if not isinstance(found, Standing):
        return _apart(pod, world) or found if found is NO_GPU else found
    pools = allowed_pools(pod, found.team.name, world)
    if pod.topology and world.pod_counts.are_costly(pod.namespace, pod.topology):
        world.pod_counts.count_one(pod.namespace, pod.topology)
        pod = pod._replace(topology=(), has_open_constraints=True)
    choice = choose(pod, pools.allowed, found, world) if pools.allowed else ()
    if not isinstance(choice, Choice):
        refused = () if pools.refusal is None else (pools.refusal,)
        return Deny(found.broken + refused + _asked_in_vain(pod, found, None) + choice)
    if choice.demand is not pod.demand:  # on slices it counts less
        pod = pod._replace(demand=choice.demand)
        found = recounted(pod, found, world.policy)
    if reasons := _against(pod, found, choice, pools, world):
        return Deny(reasons)
    return _admitted(pod, found, choice, world)


def _against(pod: Pod, found: Standing, choice: Choice, pools: Pools, world: World) -> tuple[Reason, ...]:
    """List what speaks against a choice; of a label that alone is in the way it is said what would be without it."""
    in_vain = (_in_vain(pod, note, pools.allowed, world) for note in choice.notes)
    reasons = found.broken + (() if pools.refusal is None else (pools.refusal,))
    reasons += tuple(reason for reason in in_vain if reason is not None)
    label = _asked_in_vain(pod, found, choice.model)
    return reasons + (label if reasons else tuple(_or_borrow(reason, choice) for reason in label))


def _admitted(pod: Pod, found: Standing, choice: Choice, world: World) -> Admit | Retry:
    words = _words(found.team.name)
    tier = tier_for(pod.demand.gpus, found.team, found.book, choice.model, asked=pod.requested_tier)
    if tier is _GUARANTEED:
        reason = words.within_share
    else:
        reason = words.by_choice if pod.requested_tier is _PREEMPTIBLE else words.borrows
    triple = None
    classes = world.policy.priority_classes
    if classes and not pod.priority_class and (class_name := classes.get(tier)):
        triple = world.priority_classes.get(class_name)
        if triple is None:
            text = f"PriorityClass {class_name} of tier {tier} is not known yet"
            return Retry(Reason(Code.PRIORITY_CLASS_UNKNOWN, text))
    return Admit(
        Charge(found.team.name, tier, pod.demand.gpus, choice.model, found.user),
        pod.demand,
        choice.steering,
        reason,
        world.policy.hash,
        triple,
        found.warnings + choice.notes,
        pod.requested_tier,
    )


class _Words(NamedTuple):
    """Why a pod of a team gets its tier."""

    within_share: Reason
    borrows: Reason
    by_choice: Reason


@lru_cache(maxsize=1024)  # told on every decision, the same for all pods of a team
def _words(team: TeamName) -> _Words:
    return _Words(
        Reason(Code.WITHIN_SHARE, f"inside team {team}'s guaranteed share"),
        Reason(Code.BORROWS, f"borrows idle GPUs: team {team}'s guaranteed share has no room for it"),
        Reason(Code.BORROWS_BY_CHOICE, "borrows idle GPUs, as its label asks"),
    )


def _asked_in_vain(pod: Pod, found: Standing, model: GpuModel | None) -> tuple[Reason, ...]:
    """Refuse a tier label that cannot be met: an unknown word, or "never borrow" with no share left."""
    if pod.tier_label is None:
        return ()
    if pod.requested_tier is None:
        text = (
            f"label fairgate.dev/tier is {pod.tier_label!r}; write guaranteed (never borrow), preemptible, or leave it"
        )
        return (Reason(Code.INVALID_REQUEST, text),)
    if pod.requested_tier is _GUARANTEED and not has_guaranteed_room(pod.demand.gpus, found.team, found.book, model):
        return (guaranteed_violation(found.request, found.team, found.book, model),)
    return ()


def _or_borrow(reason: Reason, choice: Choice) -> Reason:
    """Say that the pod would be admitted without its label, where nothing else is in its way."""
    if reason.code is not Code.GUARANTEED_SHARE_USED:
        return reason
    when = "once nodes have room" if choice.notes else "now"
    advice = f"without label fairgate.dev/tier it would be admitted as preemptible, and borrow idle GPUs {when}"
    return reason._replace(text=f"{reason.text}; {advice}")


def _in_vain(pod: Pod, note: Reason, pools: tuple[Pool, ...], world: World) -> Reason | None:
    """Refuse to let a pod wait where it asked for one pool that is full, or for what no node can ever give."""
    what, _, _ = note.text.partition(": the pod waits")
    if note.code is Code.NEVER_FITS and (pod.pool is not None or pod.requires):
        where = f"pool {pod.pool}" if pod.pool is not None else f"pools that offer {', '.join(sorted(pod.requires))}"
        return Reason(Code.POOL_UNFIT, f"the pod is bound to {where}: {what}")
    if pod.pool is not None and not any(pool.is_autoscaled for pool in pools):
        return Reason(Code.POOL_FULL, f"the pod is pinned to pool {pod.pool}: {what}")
    return never_refusal(pod, pools, world) if note.code is Code.NEVER_FITS else None


def _apart(pod: Pod, world: World) -> NotApplicable | Deny | None:
    """Send a pod without GPUs to the pool that is for its kind; None where none is, or it is not ours to place."""
    if pod.handling is not Handling.MANAGED or world.tenancy(pod.namespace).is_exempt:
        return None
    if not any(pool.match is not None and pool.match.matches(pod.labels) for pool in world.policy.pools):
        return None
    pools = allowed_pools(pod, world.tenancy(pod.namespace).team_name, world)
    if pools.refusal is not None:
        return Deny((pools.refusal,))
    names = ", ".join(pool.name for pool in pools.allowed)
    return NotApplicable(
        Reason(Code.SENT_TO_POOL, f"asks for no GPU and is sent to pool {names}"),
        steering=towards(pod, pools.allowed, world),
    )
