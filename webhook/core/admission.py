"""The mutating step: what terms and which nodes a pod would get now.

Order: demand, exempt?, team, limits, pools, tier, place. Pure advice: the same pod, world and policy give the same
decision, nothing is charged, and a pod that carries an intact decision already is left as it is.
"""

from functools import lru_cache
from typing import NamedTuple

from webhook.core import mark as marks
from webhook.core.decision import Admit, Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.limits import guaranteed_violation, has_guaranteed_room
from webhook.core.names import GpuModel, TeamName
from webhook.core.pod import Pod, Requester
from webhook.core.pools import allowed_pools
from webhook.core.reason import Code, Reason
from webhook.core.standing import Standing, standing
from webhook.core.steer import Choice, choose
from webhook.core.tier import Tier
from webhook.core.verification import verify
from webhook.core.world import World

_GUARANTEED, _PREEMPTIBLE = Tier.GUARANTEED, Tier.PREEMPTIBLE  # a look at an enum's member costs 0.1 us
_SETTLED = Reason(Code.ALREADY_DECIDED, "the pod carries an intact decision")


def admit(pod: Pod, requester: Requester, world: World) -> Decision:
    """Decide on what terms and where a new pod may run."""
    if pod.mark is not None:
        settled = verify(pod, requester, world)
        if isinstance(settled, Admit):
            return NotApplicable(_SETTLED, settled.charge)
        mark = marks.read(pod.mark)
        pod = pod._replace(mark=None, tier_label=None if mark is None else mark.asked)
    found = standing(pod, requester, world)
    if not isinstance(found, Standing):
        return found
    pools = allowed_pools(pod, found.team.name, world)
    reasons = found.broken + (() if pools.refusal is None else (pools.refusal,))
    choice = choose(pod, pools.allowed, found, world) if pools.allowed else ()
    if not isinstance(choice, Choice):
        return Deny(reasons + _asked_in_vain(pod, found, None) + choice)
    reasons += _asked_in_vain(pod, found, choice.model)
    if pod.pool is not None and not choice.steering.nodes:
        reasons += tuple(_pool_full(pod, note) for note in choice.notes)
    if reasons:
        return Deny(reasons)
    return _admitted(pod, found, choice, world)


def _admitted(pod: Pod, found: Standing, choice: Choice, world: World) -> Admit | Retry:
    words = _words(found.team.name)
    tier = _PREEMPTIBLE
    if pod.asked_tier is _PREEMPTIBLE:
        reason = words.by_choice
    elif has_guaranteed_room(pod.demand.gpus, found.team, found.book, choice.model):
        reason, tier = words.within_share, _GUARANTEED
    else:
        reason = words.borrows
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
        pod.asked_tier,
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
    if pod.asked_tier is None:
        text = (
            f"label fairgate.dev/tier is {pod.tier_label!r}; write guaranteed (never borrow), preemptible, or leave it"
        )
        return (Reason(Code.INVALID_REQUEST, text),)
    if pod.asked_tier is _GUARANTEED and not has_guaranteed_room(pod.demand.gpus, found.team, found.book, model):
        return (guaranteed_violation(pod.demand.gpus, found.team, found.book, model),)
    return ()


def _pool_full(pod: Pod, note: Reason) -> Reason:
    return Reason(Code.POOL_FULL, f"the pod is pinned to pool {pod.pool}: {note.text.partition(':')[0]}")
