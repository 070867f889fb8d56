"""Admit: order of the checks; update guard.

The mutating step: the tier and the nodes that a pod would get now.

Order: assess (demand, exempt?, team, limits, pools), place, tier. Deterministic advice: the same pod, world and policy
give the same decision, nothing is charged, and a pod that carries an intact decision is not changed.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from webhook.core.admission.assessment import NO_GPU, Assessment, assess
from webhook.core.admission.domain_rules import ignored_requests, place_beside
from webhook.core.admission.node_choice import ChargedChoice, choose, in_domain, node_choice_of_pools
from webhook.core.admission.pod_rules import queue_for_gang, with_old_pods
from webhook.core.admission.pools import allowed_pools
from webhook.core.admission.queueing import (
    objections,
    queue_behind_others,
    queue_for_gate,
    queue_for_limit,
    queue_for_room,
    reasons_against,
)
from webhook.core.admission.unplaced import any_model
from webhook.core.admission.verification import confirm
from webhook.core.model import decision as decision_annotation
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Queue, Retry
from webhook.core.model.pod import Handling, Pod, Requester
from webhook.core.model.reasons import Code, Reason, Resource, Statement
from webhook.core.world.world import World

_ALREADY_DECIDED = Reason(Code.ALREADY_DECIDED, "the pod carries an intact decision")


def admit(pod: Pod, requester: Requester, world: World) -> Decision:
    """Return the tier and the nodes for a new pod, or why it is refused."""
    return decide(assess(pod, requester, world), world)


def decide(assessed: Assessment, world: World) -> Decision:
    """Return the tier and the nodes for an assessed pod that is created, or why it waits in the queue or is refused."""
    if assessed.early_decision is None and assessed.pod.decision_annotation is not None:
        confirmed = confirm(assessed, world)
        if isinstance(confirmed, Admit | Queue):
            return NotApplicable(_ALREADY_DECIDED, confirmed.charge if isinstance(confirmed, Admit) else None)
        assessed = _as_created(assessed)
    if assessed.pod.foreign_gates and (queued := queue_for_gate(assessed, world)) is not None:
        return queued
    if assessed.pod.gang is not None and (queued := queue_for_gang(assessed, world)) is not None:
        return queued
    if (place := place_beside(assessed.pod, world)) is None:
        return _decide_alone(assessed, world)
    decision = _decide_alone(assessed.within(place), world)
    if isinstance(decision, Admit):
        return decision._replace(node_choice=in_domain(decision.node_choice, place))
    return decision


def _decide_alone(assessed: Assessment, world: World) -> Decision:
    decision = start(assessed, world)
    if isinstance(decision, Deny):
        if assessed.early_decision is not None:
            return decision
        return with_old_pods(queue_for_limit(assessed, decision.reasons, world), assessed.pod, world)
    if not isinstance(decision, Admit):
        return decision
    if decision.warnings:
        if (queued := queue_for_room(assessed, decision, world)) is not None:
            return with_old_pods(queued, assessed.pod, world)
        decision = with_old_pods(decision, assessed.pod, world)
    if len(world.waiting) and (behind := queue_behind_others(assessed, world)) is not None:
        return behind
    if assessed.pod.owner is None and len(world.fleet.by_model()) > 1 and isinstance(decision, Admit):
        slots, pod = 0, assessed.pod
        for pool in assessed.pools.allowed:
            slots |= world.fleet.matching(world.pools.joined(pod.constraints, pool))
        if warning := any_model(pod, slots, world):
            return decision._replace(warnings=decision.warnings + warning)
    return decision


def start(assessed: Assessment, world: World) -> Decision:
    """Return the tier and the nodes for an assessed pod without a decision if it starts now, or why it may not."""
    pod = assessed.pod
    if (early := assessed.early_decision) is not None:
        return _pool_only(pod, world) or early if early is NO_GPU else early
    choice = choose(assessed, world) if assessed.pools.allowed else ()
    if not isinstance(choice, ChargedChoice):
        return Deny(reasons_against(assessed, choice, world))
    if choice.demand is not pod.demand:  # on slices it counts less
        assessed = assessed.with_demand(choice.demand, world.policy)
    is_clear = not (assessed.broken or assessed.pools.refusal or choice.notes or pod.tier_label is not None)
    if not is_clear and (reasons := objections(assessed, choice, world)):
        return Deny(reasons)
    return _admitted(assessed, choice, world)


def _as_created(assessed: Assessment) -> Assessment:
    """Return the assessment of a pod without the decision that is no longer right for it."""
    pod = assessed.pod
    annotation = decision_annotation.read(pod.decision_annotation or "")
    asked = None if annotation is None else annotation.asked
    return assessed._replace(pod=pod._replace(decision_annotation=None, tier_label=asked))


def _admitted(assessed: Assessment, choice: ChargedChoice, world: World) -> Admit | Retry:
    pod, (team, _, user, *_) = assessed.pod, assessed.account
    reasons, requested = _reasons_for(team.name), pod.requested_tier
    tier = choice.tier
    if tier is Tier.GUARANTEED:
        reason = reasons.within_share
    elif assessed.borrowed is not None:
        words = "shares ResourceClaim {claim}, whose GPUs are borrowed"
        reason = Reason(Code.BORROWS, words, {"claim": assessed.borrowed.name})
    else:
        reason = reasons.by_choice if requested is Tier.PREEMPTIBLE else reasons.borrows
    priority = None
    classes = world.policy.priority_classes
    if classes and not pod.priority_class and (class_name := classes.get(tier)):
        priority = world.priority_classes.get(class_name)
        if priority is None:
            facts = {"class": class_name, "tier": str(tier)}
            return Retry(
                Reason(Code.PRIORITY_CLASS_UNKNOWN, "PriorityClass {class} of tier {tier} is not known yet", facts)
            )
    domain = None if pod.gang is None else pod.gang.domain
    return Admit(
        Charge(team.name, tier, pod.demand.gpus, choice.model, user),
        pod.demand,
        choice.node_choice,
        reason,
        world.policy.hash,
        priority=priority,
        warnings=assessed.warnings + choice.notes + ignored_requests(pod, domain, world),
        requested_tier=requested,
    )


class _TierReasons(NamedTuple):
    """The reasons for the tier of a team's pod."""

    within_share: Reason
    borrows: Reason
    by_choice: Reason


@lru_cache(maxsize=1024)  # used in every decision, equal for all pods of a team
def _reasons_for(team: TeamName) -> _TierReasons:
    return _TierReasons(
        Reason(Code.WITHIN_SHARE, "inside team {team}'s guaranteed share", {"team": team}),
        Reason(Code.BORROWS, "borrows idle GPUs: team {team}'s guaranteed share has no room for it", {"team": team}),
        Reason(Code.BORROWS_BY_CHOICE, "borrows idle GPUs, as its label asks"),
    )


def _pool_only(pod: Pod, world: World) -> NotApplicable | Deny | None:
    """Return the node choice for a pod without GPUs that is managed and selected by the `match` of a pool."""
    if pod.handling is not Handling.MANAGED or world.tenancy(pod.namespace).is_exempt:
        return None
    if not any(pool.match is not None and pool.match.matches(pod.labels) for pool in world.policy.pools):
        return None
    pools = allowed_pools(pod, world.tenancy(pod.namespace).team_name, world)
    if pools.refusal is not None:
        return Deny((pools.refusal,))
    names = tuple([pool.name for pool in pools.allowed])
    return NotApplicable(
        Reason(Code.SENT_TO_POOL, "asks for no GPU and is sent to pool {pools}", {"pools": names}),
        node_choice=node_choice_of_pools(pod, pools.allowed, world),
    )


# After creation no user may change a pod's team, tier or decision, nor the GPUs that a queued pod asks for.
#
# kube-apiserver enforces this by itself (webhook.kube.registration.guards) and does not call the webhook. An API server
# with another configuration that calls it all the same gets the same answer.


_UNGATED = "only Fairgate may remove scheduling gate fairgate.dev/queue, in the pod's turn: leave it, or delete the pod"
_UNTOUCHED = NotApplicable(Reason(Code.NOT_A_CREATE, "the update leaves Fairgate's labels and decision alone"))


@dataclass(frozen=True, slots=True)
class ProtectedKeys:
    """The keys that only Fairgate writes; None where the pod does not have one. `is_queued`: it has Fairgate's gate.

    `minimum` is how many replicas are to stay, which its user wrote: it is fixed once Fairgate decided on the pod.
    """

    team: str | None
    tier: str | None
    decision: str | None
    is_queued: bool = False
    minimum: str | None = None


def guard(old: ProtectedKeys, new: ProtectedKeys) -> Deny | NotApplicable:
    """Deny an update that changes a protected key."""
    if old == new:
        return _UNTOUCHED
    if old.is_queued and not new.is_queued:
        return Deny((Reason(Code.PROTECTED_KEY_CHANGED, _UNGATED),))
    changes = (
        ("label fairgate.dev/team", old.team, new.team),
        ("label fairgate.dev/tier", old.tier, new.tier),
        ("annotation fairgate.dev/decision", old.decision, new.decision),
        ("annotation fairgate.dev/minimum", old.minimum, new.minimum),
    )
    changed = tuple(
        Statement("{key} from {before} to {after}", {"key": key, "before": _show(before), "after": _show(after)})
        for key, before, after in changes
        if before != after
    )
    words = "only Fairgate may change {changes:;}: leave it as it is"
    return Deny((Reason(Code.PROTECTED_KEY_CHANGED, words, {"changes": changed}),))


def guard_demand(pod: Pod) -> Deny | NotApplicable:
    """Deny an update by which a queued pod asks for other GPUs than when it was let in."""
    found = decision_annotation.read(pod.decision_annotation or "")
    if not pod.is_queued or pod.needs_resolution or found is None or found.demand == pod.demand.devices:
        return _UNTOUCHED
    asked = tuple([Resource(name, amount) for name, amount in found.demand])
    words = "the pod is queued for {asked}, and what it asks for may not change: delete it and create it again"
    return Deny((Reason(Code.PROTECTED_KEY_CHANGED, words, {"asked": asked}),))


def _show(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= 40 else f"{value[:37]}..."  # noqa: PLR2004  # long decisions are cut for reading
