"""The check at device allocation: kube-scheduler assigns devices to a claim.

Until allocation a claim can be deleted and created again, larger, under the same name, or a template can change before
its claim is created: pods refer to both by name. So a claim may request more than its pods were admitted with. An
allocated claim cannot change.
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
from webhook.core.quota.limits import Account, applied_limits, model_violation, violations
from webhook.core.world.world import World


class Allocation(NamedTuple):
    """The devices assigned to a claim, and the pods it is reserved for.

    `is_extended`: kube-scheduler created the claim itself, for extended resources of the pod's containers.
    """

    key: ClaimKey
    uid: Uid
    devices: ClaimSpec
    pods: tuple[Uid, ...]
    is_extended: bool = False


def judge_allocation(request: Allocation, world: World) -> Decision:
    """Return whether the pod charged for the claim was admitted with at least as many GPUs, as a decision."""
    policy, tenancy = world.policy, world.tenancy(request.key.namespace)
    if tenancy.is_exempt:
        return NotApplicable(Reason(Code.EXEMPT, f"namespace {request.key.namespace} is exempt: only counted"))
    worth = world.claims.worth(request.devices, policy, is_admin=tenancy.has_admin_access)
    if worth.unknown and policy.defaults.unknown_gpu is UnknownGpu.REJECT:
        return Deny(
            tuple(Reason(Code.UNKNOWN_GPU_RESOURCE, unknown_gpu(name, policy)) for name in dict.fromkeys(worth.unknown))
        )
    if worth.missing:
        return _retry(f"not known yet: {', '.join(dict.fromkeys(worth.missing))}")
    if not worth.gpus:
        return NO_GPU
    team = tenancy.team or default_team(policy)
    if team is None:
        return Deny((unknown_team(request.key.namespace, policy),))
    current = world.claims.uid_of(request.key)
    if not request.is_extended and current != request.uid:
        return _retry(f"ResourceClaim {request.key.namespace}/{request.key.name} is not known yet as it is now")
    payer = request.pods[:1] if request.is_extended else world.claims.payer_of(request.key)
    pods = [world.pod(uid) for uid in dict.fromkeys((*payer, *request.pods))]
    if not pods or None in pods:
        return _retry("the pods that it is reserved for are not known yet")
    return _judge(request, [pod for pod in pods if pod is not None], worth.gpus, team, world)


def _judge(request: Allocation, pods: list[Resident], gpus: Units, team: Team, world: World) -> Decision:
    charge = world.charge_of(pods[0].uid)
    allowed = NotApplicable(Reason(Code.CLAIM_COVERED, f"team {team.name} is charged for it"), charge)
    if request.is_extended:
        is_covered = charge is not None and charge.gpus >= gpus
        return allowed if is_covered else Deny((_changed(request, pods[0], gpus),))
    for pod in pods:
        if pod.admitted is None and not isinstance(world.evidence(pod.uid), Alive):
            return _retry(f"pod {pod.name} is not known yet")
        if pod.admitted is None and pod.is_managed:
            return Deny((_changed(request, pod, gpus),))
    payer = pods[0]
    if charge is None:
        return _retry(f"pod {payer.name} is not charged yet")
    held = payer.admitted
    if held is None or held.policy != world.policy.hash or any(ref.group for ref in payer.claims):
        broken = _broken(payer, charge, team, world)
        return Deny(broken) if broken else allowed
    is_covered = request.uid in held.claims or charge.gpus <= held.gpus
    return allowed if is_covered else Deny((_changed(request, payer, gpus),))


def _broken(payer: Resident, charge: Charge, team: Team, world: World) -> tuple[Reason, ...]:
    """Return the limits that the current charge exceeds, for a pod whose admitted amount is not recorded."""
    usage = world.usage(team.name)
    account = Account(team, usage, charge.user, payer)
    request = Request(0, now=world.now)
    over = model_violation(request, team, usage, charge.model) if charge.model is not None else None
    per_pod = (
        applied for applied in applied_limits(account) if applied.is_per_pod and applied.is_exceeded_by(charge.gpus)
    )
    large = [applied.violation(Request(charge.gpus), usage) for applied in per_pod]
    return (*large, *violations(request, account), *((over,) if over is not None else ()))


def _changed(request: Allocation, pod: Resident, gpus: Units) -> Reason:
    before = "" if pod.admitted is None else f", its pod {pod.name} was admitted with {gpus_text(pod.admitted.gpus)}"
    detail = f"pod {pod.name} was admitted without it" if pod.admitted is None else ""
    text = f"ResourceClaim {request.key.name} takes {plural_gpus(gpus)}{before or f', and {detail}'}"
    return Reason(
        Code.CLAIM_CHANGED,
        f"{text}: the claim or its template changed after that. Delete the pod and create it again",
    )


def _retry(text: str) -> Retry:
    return Retry(Reason(Code.CLAIM_UNKNOWN, f"{text}: try again"))
