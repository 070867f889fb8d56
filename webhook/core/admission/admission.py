"""The mutating step: the tier and the nodes that a pod would get now.

Order: assess (demand, exempt?, team, limits, pools), place, tier. Deterministic advice: the same pod, world and policy
give the same decision, nothing is charged, and a pod that carries an intact decision is not changed.
"""

from functools import lru_cache
from typing import NamedTuple

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.node_choice import Choice, choose, steering_to_pools
from webhook.core.admission.pod_rules import NO_GPU
from webhook.core.admission.pools import allowed_pools
from webhook.core.admission.unplaced import never_refusal
from webhook.core.admission.verification import confirm
from webhook.core.model import decision_annotation as marks
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.model.names import TeamName
from webhook.core.model.pod import Handling, Pod, Requester
from webhook.core.model.policy import Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.world.world import World

_GUARANTEED, _PREEMPTIBLE = Tier.GUARANTEED, Tier.PREEMPTIBLE  # access to an enum member costs 0.1 us
_ALREADY_DECIDED = Reason(Code.ALREADY_DECIDED, "the pod carries an intact decision")


def admit(pod: Pod, requester: Requester, world: World) -> Decision:
    """Return the tier and the nodes for a new pod, or why it is refused."""
    return decide(assess(pod, requester, world), world)


def decide(assessed: Assessment, world: World) -> Decision:
    """Return the tier and the nodes for an assessed pod, or why it is refused."""
    pod = assessed.pod
    if (early := assessed.early_decision) is not None:
        return _pool_only(pod, world) or early if early is NO_GPU else early
    if pod.mark is not None:
        confirmed = confirm(assessed, world)
        if isinstance(confirmed, Admit):
            return NotApplicable(_ALREADY_DECIDED, confirmed.charge)
        mark = marks.read(pod.mark)
        pod = pod._replace(mark=None, tier_label=None if mark is None else mark.asked)
        assessed = assessed._replace(pod=pod)
    choice = choose(assessed, world) if assessed.pools.allowed else ()
    if not isinstance(choice, Choice):
        return Deny(_refusals(assessed) + assessed.label_refusal(None) + choice)
    assessed = assessed.with_demand(choice.demand, world.policy)  # on slices it counts less
    if reasons := _objections(assessed, choice, world):
        return Deny(reasons)
    return _admitted(assessed, choice, world)


def _refusals(assessed: Assessment) -> tuple[Reason, ...]:
    """Return the reasons that refuse a pod on every node."""
    refusal = assessed.pools.refusal
    return assessed.broken if refusal is None else (*assessed.broken, refusal)


def _objections(assessed: Assessment, choice: Choice, world: World) -> tuple[Reason, ...]:
    """Return the reasons that refuse a choice; if the tier label is the only one, add what happens without it."""
    reasons = _refusals(assessed)
    if choice.notes:
        refused = (_wait_refusal(assessed.pod, note, assessed.pools.allowed, world) for note in choice.notes)
        reasons += tuple(reason for reason in refused if reason is not None)
    if assessed.pod.tier_label is None:
        return reasons
    label = assessed.label_refusal(choice.model)
    return reasons + (label if reasons else tuple(_with_borrow_advice(reason, choice) for reason in label))


def _admitted(assessed: Assessment, choice: Choice, world: World) -> Admit | Retry:
    pod, (team, _, user, _) = assessed.pod, assessed.account
    reasons = _reasons_for(team.name)
    tier = assessed.tier(pod.demand, choice.model)
    if tier is _GUARANTEED:
        reason = reasons.within_share
    else:
        reason = reasons.by_choice if pod.requested_tier is _PREEMPTIBLE else reasons.borrows
    priority = None
    classes = world.policy.priority_classes
    if classes and not pod.priority_class and (class_name := classes.get(tier)):
        priority = world.priority_classes.get(class_name)
        if priority is None:
            text = f"PriorityClass {class_name} of tier {tier} is not known yet"
            return Retry(Reason(Code.PRIORITY_CLASS_UNKNOWN, text))
    return Admit(
        Charge(team.name, tier, pod.demand.gpus, choice.model, user),
        pod.demand,
        choice.steering,
        reason,
        world.policy.hash,
        priority,
        assessed.warnings + choice.notes,
        pod.requested_tier,
    )


class _TierReasons(NamedTuple):
    """The reasons for the tier of a team's pod."""

    within_share: Reason
    borrows: Reason
    by_choice: Reason


@lru_cache(maxsize=1024)  # used in every decision, equal for all pods of a team
def _reasons_for(team: TeamName) -> _TierReasons:
    return _TierReasons(
        Reason(Code.WITHIN_SHARE, f"inside team {team}'s guaranteed share"),
        Reason(Code.BORROWS, f"borrows idle GPUs: team {team}'s guaranteed share has no room for it"),
        Reason(Code.BORROWS_BY_CHOICE, "borrows idle GPUs, as its label asks"),
    )


def _with_borrow_advice(reason: Reason, choice: Choice) -> Reason:
    """Add to the reason that the pod would be admitted without its tier label."""
    if reason.code is not Code.GUARANTEED_SHARE_USED:
        return reason
    when = "once nodes have room" if choice.notes else "now"
    advice = f"without label fairgate.dev/tier it would be admitted as preemptible, and borrow idle GPUs {when}"
    return reason._replace(text=f"{reason.text}; {advice}")


def _wait_refusal(pod: Pod, note: Reason, pools: tuple[Pool, ...], world: World) -> Reason | None:
    """Return the refusal of a pod that must not wait: its pinned pool is full, or no node can ever hold it."""
    what, _, _ = note.text.partition(": the pod waits")
    if note.code is Code.NEVER_FITS and (pod.pool is not None or pod.requires):
        where = f"pool {pod.pool}" if pod.pool is not None else f"pools that offer {', '.join(sorted(pod.requires))}"
        return Reason(Code.POOL_UNFIT, f"the pod is bound to {where}: {what}")
    if pod.pool is not None and not any(pool.is_autoscaled for pool in pools):
        return Reason(Code.POOL_FULL, f"the pod is pinned to pool {pod.pool}: {what}")
    return never_refusal(pod, pools, world) if note.code is Code.NEVER_FITS else None


def _pool_only(pod: Pod, world: World) -> NotApplicable | Deny | None:
    """Return the steering for a pod without GPUs that is managed and selected by the `match` of a pool."""
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
        steering=steering_to_pools(pod, pools.allowed, world),
    )
