"""kube-scheduler gives a claim its devices: the last moment at which it can be more than its pods were let in with.

Until then a claim may be deleted and made again under its name, larger, or a template changed before its claim is made:
pods name both, and nothing binds the name to what was judged. An allocated claim cannot change.
"""

from typing import NamedTuple

from webhook.core.admission.assessment import default_team, unknown_team
from webhook.core.admission.pod_rules import NO_GPU
from webhook.core.admission.resolve_demand import unknown_gpu
from webhook.core.dra.dra_claims import ClaimKey, ClaimSpec
from webhook.core.model.amount import Units, gpus_text
from webhook.core.model.decision import Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Team, UnknownGpu
from webhook.core.model.reason import Code, Reason
from webhook.core.model.text import plural_gpus
from webhook.core.quota.in_flight import Alive
from webhook.core.quota.limit_text import Request
from webhook.core.quota.limits import Account, bars, model_violation, violations
from webhook.core.world.world import World


class Allocation(NamedTuple):
    """What a claim gets, and the pods that it is reserved for.

    `is_extended`: kube-scheduler made the claim itself, for what the pod's containers ask for.
    """

    key: ClaimKey
    uid: Uid
    got: ClaimSpec
    pods: tuple[Uid, ...]
    is_extended: bool = False


def judge_allocation(asked: Allocation, world: World) -> Decision:
    """Allow a claim's devices if the pod that pays for them was let in with so many."""
    policy, tenancy = world.policy, world.tenancy(asked.key.namespace)
    if tenancy.is_exempt:
        return NotApplicable(Reason(Code.EXEMPT, f"namespace {asked.key.namespace} is exempt: only counted"))
    worth = world.claims.worth(asked.got, policy, is_admin=tenancy.may_look)
    if worth.unknown and policy.defaults.unknown_gpu is UnknownGpu.REJECT:
        return Deny(
            tuple(Reason(Code.UNKNOWN_GPU_RESOURCE, unknown_gpu(name, policy)) for name in dict.fromkeys(worth.unknown))
        )
    if worth.missing:
        return _again(f"not known yet: {', '.join(dict.fromkeys(worth.missing))}")
    if not worth.gpus:
        return NO_GPU
    team = tenancy.team or default_team(policy)
    if team is None:
        return Deny((unknown_team(asked.key.namespace, policy),))
    known = world.claims.uid_of(asked.key)
    if not asked.is_extended and known != asked.uid:
        return _again(f"ResourceClaim {asked.key.namespace}/{asked.key.name} is not known yet as it is now")
    payer = asked.pods[:1] if asked.is_extended else world.claims.payer_of(asked.key)
    pods = [world.pod(uid) for uid in dict.fromkeys((*payer, *asked.pods))]
    if not pods or None in pods:
        return _again("the pods that it is reserved for are not known yet")
    return _judged(asked, [pod for pod in pods if pod is not None], worth.gpus, team, world)


def _judged(asked: Allocation, pods: list[Resident], gpus: Units, team: Team, world: World) -> Decision:
    charge = world.charge_of(pods[0].uid)
    allowed = NotApplicable(Reason(Code.CLAIM_COVERED, f"team {team.name} is charged for it"), charge)
    if asked.is_extended:
        is_covered = charge is not None and charge.gpus >= gpus
        return allowed if is_covered else Deny((_changed(asked, pods[0], gpus),))
    for pod in pods:
        if pod.admitted is None and not isinstance(world.evidence(pod.uid), Alive):
            return _again(f"pod {pod.name} is not known yet")
        if pod.admitted is None and pod.is_managed:
            return Deny((_changed(asked, pod, gpus),))
    payer = pods[0]
    if charge is None:
        return _again(f"pod {payer.name} is not charged yet")
    held = payer.admitted
    if held is None or held.policy != world.policy.hash or any(ref.group for ref in payer.claims):
        broken = _broken(payer, charge, team, world)
        return Deny(broken) if broken else allowed
    is_covered = asked.uid in held.claims or charge.gpus <= held.gpus
    return allowed if is_covered else Deny((_changed(asked, payer, gpus),))


def _broken(payer: Resident, charge: Charge, team: Team, world: World) -> tuple[Reason, ...]:
    """Hold what is charged by now against the limits: nothing says what this pod was let in with."""
    book = world.usage(team.name)
    account = Account(team, book, charge.user, payer)
    request = Request(0, now=world.now)
    over = model_violation(request, team, book, charge.model) if charge.model is not None else None
    per_pod = (bar for bar in bars(account) if bar.is_per_pod and bar.breaks(charge.gpus))
    large = [bar.violation(Request(charge.gpus), book) for bar in per_pod]
    return (*large, *violations(request, account), *((over,) if over is not None else ()))


def _changed(asked: Allocation, pod: Resident, gpus: Units) -> Reason:
    before = "" if pod.admitted is None else f", its pod {pod.name} was let in with {gpus_text(pod.admitted.gpus)}"
    who = f"pod {pod.name} was let in without it" if pod.admitted is None else ""
    text = f"ResourceClaim {asked.key.name} takes {plural_gpus(gpus)}{before or f', and {who}'}"
    return Reason(
        Code.CLAIM_CHANGED,
        f"{text}: the claim or its template changed after that. Delete the pod and create it again",
    )


def _again(text: str) -> Retry:
    return Retry(Reason(Code.CLAIM_UNKNOWN, f"{text}: try again"))
