"""Refuse, wait or queue.

The reasons that refuse a pod on the nodes that were chosen for it, with advice.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from typing import Any, Final

from webhook.core.admission.assessment import Assessment, EarlyDecision
from webhook.core.admission.domain_rules import ignored_requests
from webhook.core.admission.node_choice import ChargedChoice, choose, own_place
from webhook.core.admission.pools import may_grow
from webhook.core.admission.unplaced import (
    could_hold,
    has_closed_room,
    never_refusal,
    scattered,
    shortage_of,
    without_room,
)
from webhook.core.model import decision
from webhook.core.model.amounts import ONE_GPU, Limit, NodeName, ResourceName, TeamName, Units, Unlimited, format_gpus
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Deny, NotApplicable, Queue, Retry
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import OnLimit, OnNoRoom, Policy, Pool, Team
from webhook.core.model.reasons import LEVELS, LIMITS, NO_ROOM, WAITING, Code, Reason, Statement, waits_for
from webhook.core.quota.limits import AppliedLimit, applied_limits, applied_model_limits
from webhook.core.tiers.tier_changes import inside_share
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


# Pods that may not start now and wait in the queue: who may wait, and why it waits, in numbers.
#
# A pod waits where policy says so (`onLimit: queue`, `onNoRoom: queue`), where another controller's scheduling gate
# holds it anyway, and inside its team's guaranteed share where only borrowing pods use up a department's limit: reclaim
# takes that back for pods that exist, so a pod that was refused would never get it. A pod that could not run even if
# its team held nothing is refused at once.


QUEUE_MODE: Final = "queue"
"""The mode in the decision annotation of a pod that waits in the queue."""

_FORGED_GATE: Final = (
    "scheduling gate fairgate.dev/queue does not belong to the pod's decision: something changed the pod after "
    "Fairgate's mutating webhook"
)


def can_queue(team: Team, policy: Policy) -> bool:
    """Whether pods of a team wait in the queue by policy, for a limit or for room."""
    return policy.on_limit(team) is OnLimit.QUEUE or policy.on_no_room(team) is OnNoRoom.QUEUE


def queue_for_limit(assessed: Assessment, reasons: tuple[Reason, ...], world: World) -> Queue | Deny:
    """Return whether a refused pod waits until GPUs of its team come back, or the refusal."""
    codes = {reason.code for reason in reasons}
    code = _code_to_wait(assessed, codes, world)
    if code is None:
        return Deny(reasons)
    if never := reasons_never_to_start(assessed, world):
        return Deny(never)
    if codes & LIMITS:
        cause = _limit_cause(assessed, world, is_borrowed=code is Code.WAITS_FOR_BORROWERS)
        return wait_in_line(assessed, code, cause, world)
    return wait_in_line(assessed, code, _room_cause(reasons), world)


def refuse_at_commit(assessed: Assessment, reasons: tuple[Reason, ...], world: World) -> Deny | Retry:
    """Refuse the final object of a pod that was to start; if it would wait in the queue, have it tried again.

    Other pods were faster, and only the mutating step can put it in the queue.
    """
    codes = {reason.code for reason in reasons}
    if _code_to_wait(assessed, codes, world) is None or assessed.as_if_unused().broken:
        return Deny(reasons)
    text = "other pods were faster, and a limit no longer has room for it: try again, and it is queued"
    return Retry(Reason(Code.RACE_LOST, text))


def _code_to_wait(assessed: Assessment, codes: Set[Code], world: World) -> Code | None:
    """Return the code with which a pod waits in the queue that is refused with these ones; None if it is refused."""
    team, policy, waits_for_limit = assessed.team, world.policy, bool(codes & LIMITS)
    waits_by_policy = (
        policy.on_limit(team) is OnLimit.QUEUE if waits_for_limit else policy.on_no_room(team) is OnNoRoom.QUEUE
    )
    if not codes <= LIMITS | NO_ROOM:
        return None
    may_be_borrowed = bool(codes & LEVELS) and (waits_by_policy or Code.TEAM_LIMIT_EXCEEDED not in codes)
    if may_be_borrowed and is_kept_out_by_borrowers(assessed, world):
        return Code.WAITS_FOR_BORROWERS
    if not waits_by_policy:
        return None
    return Code.WAITS_FOR_LIMIT if waits_for_limit else Code.WAITS_FOR_ROOM


def queue_for_room(assessed: Assessment, admit: Admit, world: World) -> Queue | Deny | None:
    """Return whether a pod inside its limits waits in the queue until a node has room; None if it need not.

    An autoscaler adds nodes for pods that kube-scheduler finds no room for, so pods of such pools are not queued.
    """
    if not (waits_for_room(assessed, world) and any(each.code in NO_ROOM for each in admit.warnings)):
        return None
    return wait_in_line(assessed, Code.WAITS_FOR_ROOM, _room_cause(admit.warnings), world)


def waits_for_room(assessed: Assessment, world: World) -> bool:
    """Whether a pod that finds no room waits in the queue, and not in kube-scheduler.

    Whatever policy says, it does where only nodes have room that reject the pods of its team, or that an operator
    changes: kube-scheduler would send it there at once, and the pod that replaces it as well.
    """
    if may_grow(assessed.pools.allowed, world):
        return False
    if world.policy.on_no_room(assessed.team) is OnNoRoom.QUEUE:
        return True
    return has_closed_room(assessed.pod, assessed.pools.allowed, world, team=assessed.team.name)


def queue_behind_others(assessed: Assessment, world: World) -> Queue | Deny | None:
    """Return whether a pod that could start now waits because others of its team wait already; None if none does.

    A pod for which a node keeps a place ran before, and others gain nothing if it waits.
    """
    team = assessed.team
    if not (can_queue(team, world.policy) and world.waiting.has_line(team.name)):
        return None
    if world.keeping and own_place(assessed.pod, world) is not None:
        return None
    return wait_in_line(assessed, Code.WAITS_IN_LINE, behind_others(team.name), world)


def behind_others(team: TeamName) -> Statement:
    """Return the cause of a pod that could start if it were first in the queue."""
    return Statement("pods of team {team} wait ahead of it", {"team": team})


def behind_other_teams() -> Statement:
    """Return the cause of a pod that is the first of its team, and that could start if no other team waited."""
    return Statement("pods of other teams wait ahead of it", {})


def queue_for_gate(assessed: Assessment, world: World) -> Queue | Deny | None:
    """Return whether a pod waits for another controller's scheduling gate; None if it has no such gate.

    Its owner may still narrow its nodes, and until then it can use nothing, so it is charged and bound to nodes later.
    Where policy lets no pod of its team wait, a full line is no reason to refuse it: it is decided on at once.
    """
    is_decided = assessed.early_decision is not None or assessed.pod.handling is not Handling.MANAGED
    if is_decided or not assessed.pod.foreign_gates:
        return None
    if never := reasons_never_to_start(assessed, world):
        return Deny(never)
    cause = Statement("scheduling gate {gates} of another controller holds it", {"gates": assessed.pod.foreign_gates})
    queued = wait_in_line(assessed, Code.WAITS_FOR_GATE, cause, world)
    return queued if isinstance(queued, Queue) or can_queue(assessed.team, world.policy) else None


def reasons_never_to_start(assessed: Assessment, world: World) -> tuple[Reason, ...]:
    """Return why a pod could not start even if its team held nothing, with what is used now; empty if it could."""
    never = _reasons_alone(assessed.as_if_unused(), world)
    if not never:
        return ()
    codes = {reason.code for reason in never}
    choice = choose(assessed, world) if assessed.pools.allowed else ()
    shown = [reason for reason in reasons_against(assessed, choice, world) if reason.code in codes]
    return (*shown, *(reason for reason in never if all(reason.code is not each.code for each in shown)))


def _reasons_alone(alone: Assessment, world: World) -> tuple[Reason, ...]:
    if alone.broken or alone.pools.refusal is not None:
        return alone.broken if alone.pools.refusal is None else (*alone.broken, alone.pools.refusal)
    choice = choose(alone, world)
    if not isinstance(choice, ChargedChoice):
        return choice
    found = objections(alone.with_demand(choice.demand, world.policy), choice, world)
    return tuple(reason for reason in found if reason.code not in NO_ROOM)


def confirm_queued(assessed: Assessment, world: World) -> Queue | Deny | Retry:
    """Return the decision on the final object of a pod with Fairgate's scheduling gate."""
    pod, team = assessed.pod, assessed.team
    if pod.decision_annotation is None and pod.team_label is None:
        return Retry(Reason(Code.MUTATION_MISSING, "the pod did not pass Fairgate's mutating webhook: try again"))
    found = decision.read(pod.decision_annotation or "")
    if found is not None and found.policy != world.policy.hash:
        return Retry(Reason(Code.RACE_LOST, "the policy changed while the pod was being created: try again"))
    is_intact = (
        found is not None
        and found.mode == QUEUE_MODE
        and found.code in WAITING
        and pod.team_label == team.name
        and found.user == assessed.user
        and found.asked == (None if pod.requested_tier is None else str(pod.requested_tier))
        and found.demand == pod.demand.devices
        and found.gpus == format_gpus(pod.demand.gpus)
        and _may_wait(assessed, world)
    )
    if found is None or not is_intact:
        return Deny((Reason(Code.MUTATION_ALTERED, _FORGED_GATE),))
    if never := reasons_never_to_start(assessed, world):
        return Deny(never)
    if not world.waiting.is_in(pod.uid) and (full := _full(team, world)):
        return Deny((full,))
    why = Reason(Code(found.code), "is queued: annotation fairgate.dev/waiting says for what")
    return Queue(team.name, pod.demand, why, world.policy.hash, user=assessed.user, requested_tier=pod.requested_tier)


def _may_wait(assessed: Assessment, world: World) -> bool:
    """Whether a pod may wait in the queue for any reason: a decision that its user wrote puts none there."""
    pod, team = assessed.pod, assessed.team
    return (
        can_queue(team, world.policy)
        or team.name in world.rejecting_nodes.records
        or world.rejecting_nodes.unused.has(pod)
        or bool(world.absent_nodes.maintained)
        or bool(pod.foreign_gates)
        or (pod.gang is not None and pod.gang.is_requested)
        or may_wait_for_borrowers(assessed)
    )


def refuse_gate(early: EarlyDecision) -> EarlyDecision:
    """Refuse a pod that is only counted if it carries Fairgate's scheduling gate: its charge would never end.

    Such pods are never patched, so their gate would stay. Pods of exempt namespaces are not charged while they have it.
    """
    if not (isinstance(early, NotApplicable) and early.reason.code is Code.COUNTED_ONLY):
        return early
    text = "scheduling gate fairgate.dev/queue is for pods that Fairgate places: remove it"
    return Deny((Reason(Code.INVALID_REQUEST, text),))


def reason_to_wait(assessed: Assessment, reasons: tuple[Reason, ...], world: World) -> Reason:
    """Return why a pod that waits still may not start, by the reasons that refuse it: without its position."""
    if any(reason.code in LIMITS for reason in reasons):
        is_borrowed = is_kept_out_by_borrowers(assessed, world)
        code = Code.WAITS_FOR_BORROWERS if is_borrowed else Code.WAITS_FOR_LIMIT
        return Reason(code, *_limit_cause(assessed, world, is_borrowed=is_borrowed))
    if any(reason.code in NO_ROOM for reason in reasons):
        return Reason(Code.WAITS_FOR_ROOM, *_room_cause(reasons))
    if len(reasons) == 1:
        return Reason(Code.WAITS_IN_LINE, *reasons[0].statement)
    return Reason(Code.WAITS_IN_LINE, "{reasons:;}", {"reasons": tuple([reason.statement for reason in reasons])})


def wait_in_line(assessed: Assessment, code: Code, cause: Statement, world: World) -> Queue | Deny:
    """Return that a pod waits in the queue, and its place there; a refusal where the queue is full."""
    team, pod = assessed.team, assessed.pod
    if full := _full(team, world):
        return Deny((full,))
    why = waits_for(code, cause, place=world.waiting.next_place(team.name))
    warnings = ignored_requests(pod, None if pod.gang is None else pod.gang.domain, world)
    return Queue(
        team.name,
        pod.demand,
        why,
        world.policy.hash,
        user=assessed.user,
        requested_tier=pod.requested_tier,
        warnings=warnings,
    )


def _full(team: Team, world: World) -> Reason | None:
    depth, length = world.policy.queue_depth(team), world.waiting.count(team.name)
    if length < depth:
        return None
    words = (
        "team {team}: 1 pod is queued, which is all that its queue holds; wait until it has started, or delete it"
        if length == 1
        else "team {team}: {length:,} pods are queued, which is all that its queue holds ({depth:,}); wait until "
        "some have started, or delete some"
    )
    return Reason(Code.QUEUE_FULL, words, {"team": team.name, "length": length, "depth": depth})


def limits_in_the_way(assessed: Assessment) -> list[AppliedLimit]:
    """Return the limits that other pods use up; none for a pod that only the guaranteed share has no room for."""
    return [each for each in shared_limits(assessed) if each.is_exceeded_by(assessed.request.gpus)]


def is_kept_out_by_borrowers(assessed: Assessment, world: World) -> bool:
    """Whether a pod inside its guaranteed share would have room under all limits if no pod there borrowed.

    Not so for a pod of a gang: no room is made for a part of it.
    """
    if assessed.pod.gang is not None or not assessed.has_guaranteed_room(None):
        return False
    gpus = assessed.request.gpus
    blocking = [each for each in applied_limits(assessed.account) if each.is_exceeded_by(gpus)]
    return fits_without_borrowers(assessed, blocking, gpus, world)


def fits_without_borrowers(assessed: Assessment, blocking: Sequence[AppliedLimit], gpus: Units, world: World) -> bool:
    """Whether so many GPU units are inside a team's share, and fit under all limits once no pod there borrows.

    Each limit in the way is one of the team or of a department as a whole, and enough is borrowed under it.
    """
    if assessed.pod.requested_tier is Tier.PREEMPTIBLE:
        return False
    team = assessed.team
    is_enough = bool(blocking) and all(
        each.code in LEVELS and _borrowed(each, assessed) >= _missing(each.taken + gpus, each.limit)
        for each in blocking
    )
    return is_enough and share_used(team, world) + gpus <= team.gpus.guaranteed


def may_wait_for_borrowers(assessed: Assessment) -> bool:
    """Whether a pod may ever wait until borrowers leave its departments, whatever policy says of its team's limit."""
    is_inside_share = (
        assessed.pod.gang is None
        and assessed.pod.requested_tier is not Tier.PREEMPTIBLE
        and assessed.request.gpus <= assessed.team.gpus.guaranteed
    )
    limits = (level.department.gpus.limit for level in assessed.usage.levels)
    return is_inside_share and any(not isinstance(limit, Unlimited) for limit in limits)


def share_used(team: Team, world: World) -> Units:
    """Return how much of a team's guaranteed share its pods use, with those that only run as preemptible for now."""
    return world.usage(team.name).guaranteed + sum(change.charge.gpus for change in inside_share(team, world))


def _borrowed(applied: AppliedLimit, assessed: Assessment) -> Units:
    """Return what pods borrow under a limit of the team or of a department."""
    return assessed.usage.preemptible if applied.level is None else applied.level.preemptible


def shared_limits(assessed: Assessment) -> list[AppliedLimit]:
    """Return the limits that count the pods of a team, user or department together."""
    account = assessed.account
    applied = [each for each in applied_limits(account) if not each.is_per_pod]
    return applied + list(applied_model_limits(account.team, account.usage))


def _limit_cause(assessed: Assessment, world: World, *, is_borrowed: bool) -> Statement:
    """Return what the team or user holds of each limit in the way, how many GPUs must come back, and what nodes lack.

    `is_borrowed` is what is_kept_out_by_borrowers says.
    """
    gpus, (team, usage, *_) = assessed.request.gpus, assessed.account
    blocking = limits_in_the_way(assessed)
    if is_borrowed:
        return borrowed_limits(assessed, blocking, gpus)
    short = scattered(assessed.pod, assessed.pools.allowed, world)
    if blocking:
        return over_limits(blocking, gpus, short)
    share, taken = team.gpus.guaranteed, usage.guaranteed  # the pod asks never to borrow
    facts = {"team": team.name, "taken": taken, "share": share, "next": _next(_missing(taken + gpus, share), short)}
    return Statement("team {team} holds {taken:gpus} of {share:gpus} of its guaranteed share; {next}", facts)


def borrowed_limits(assessed: Assessment, blocking: Sequence[AppliedLimit], gpus: Units) -> Statement:
    """Return what pods borrow of the limits in the way, and that reclaim can take it back for so many GPU units.

    Whether an evictor runs is not known here.
    """
    held = tuple([_held(each, borrowed=_borrowed(each, assessed)) for each in blocking])
    back = max(_missing(each.taken + gpus, each.limit) for each in blocking)
    facts: dict[str, Any] = {"held": held, "team": assessed.team.name, "back": back}
    words = "{held:and}; it is inside team {team}'s guaranteed share, so {back:GPUs} can be reclaimed"
    if lingering := max((each.level or assessed.usage).lingering for each in blocking):
        words += ", {lingering:gpus} as soon as nodes have ended pods that were deleted by force"
        facts["lingering"] = min(back, lingering)
    return Statement(words, facts)


def over_limits(blocking: list[AppliedLimit], gpus: Units, short: Statement | None = None) -> Statement:
    """Return what is held of the limits in the way of so many GPU units, and how many GPUs must come back.

    `short` is what nodes lack as well: a pod may not start where enough comes back on several of them.
    """
    missing = max(_missing(each.taken + each.kept + gpus, each.limit) for each in blocking)
    return Statement("{held:and}; {next}", {"held": tuple(map(_held, blocking)), "next": _next(missing, short)})


def _next(back: Units, short: Statement | None) -> Statement:
    is_one = back == ONE_GPU
    if short is not None:
        return Statement("{back:GPUs} must come back, and {short}", {"back": back, "short": short})
    return Statement(
        "next when {back:GPUs} comes back" if is_one else "next when {back:GPUs} come back", {"back": back}
    )


def _held(applied: AppliedLimit, borrowed: Units | None = None) -> Statement:
    facts: dict[str, Any] = {"subject": applied.subject, "taken": applied.taken}
    words = "{subject} holds {taken:gpus}"
    if not isinstance(applied.limit, Unlimited):
        words += " of {limit:gpus}"
        facts["limit"] = applied.limit
    if borrowed is not None:
        words += ", {borrowed:gpus} of them borrowed"
        facts["borrowed"] = borrowed
    elif applied.kept:
        words += ", {kept:gpus} reserved for pods inside their guaranteed shares"
        facts["kept"] = applied.kept
    return Statement(words, facts)


def _missing(wanted: Units, limit: Limit) -> Units:
    return 0 if isinstance(limit, Unlimited) else max(0, wanted - limit)


def _room_cause(reasons: tuple[Reason, ...]) -> Statement:
    return without_room(next(reason for reason in reasons if reason.code in NO_ROOM))


def as_requested(pod: Pod, asked: str | None) -> Pod:
    """Return a pod as its user created it: without the decision, with the tier label that the user wrote."""
    return pod._replace(decision_annotation=None, team_label=None, tier_label=asked, is_queued=False)
