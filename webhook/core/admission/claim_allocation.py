"""The check at device allocation: kube-scheduler assigns devices to a claim.

Until allocation a claim can be deleted and created again, larger, under the same name, or a template can change before
its claim is created: pods refer to both by name. So a claim may request more than its pods were admitted with. An
allocated claim cannot change. All claims of a pod together are compared with what it was admitted with: several may
have grown, each by little.

The claim that kube-scheduler makes for the extended resources of a pod's containers is named by no pod; at this time
not even by the status of its own. What it says of itself is the tenant's to write, so it is recognized by that: the
pod that it is reserved for does not name it.
"""

from typing import NamedTuple

from webhook.core.admission.assessment import default_team, unknown_team
from webhook.core.admission.pod_rules import NO_GPU
from webhook.core.admission.resolve_demand import unknown_gpu
from webhook.core.dra.claim_spec import ClaimKey, ClaimSpec
from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Team, UnknownGpu
from webhook.core.model.reason import Code, Reason
from webhook.core.model.statement import Statement
from webhook.core.quota.in_flight import Alive
from webhook.core.quota.limit_text import Request
from webhook.core.quota.limits import Account, applied_limits, model_violation, violations
from webhook.core.quota.team import exempt_reason
from webhook.core.world.world import World


class Allocation(NamedTuple):
    """The devices assigned to a claim, and the pods it is reserved for.

    `made_for` is the pod for whose containers kube-scheduler made it, if it says so itself.
    """

    key: ClaimKey
    uid: Uid
    devices: ClaimSpec
    pods: tuple[Uid, ...]
    made_for: Uid | None = None


def judge_allocation(request: Allocation, world: World) -> Decision:
    """Return whether the pod charged for the claim was admitted with at least as many GPUs, as a decision."""
    policy, tenancy = world.policy, world.tenancy(request.key.namespace)
    if tenancy.is_exempt:
        return NotApplicable(exempt_reason(tenancy.facts, policy))
    worth = world.claims.classes.worth(request.devices, policy, is_admin=tenancy.has_admin_access)
    if worth.unknown and policy.defaults.unknown_gpu is UnknownGpu.REJECT:
        return Deny(tuple(unknown_gpu(name, policy) for name in dict.fromkeys(worth.unknown)))
    if worth.missing:
        return _retry(Statement("not known yet: {missing}", {"missing": tuple(dict.fromkeys(worth.missing))}))
    team = tenancy.team or default_team(policy)
    if team is None and worth.gpus:
        return Deny((unknown_team(request.key.namespace, policy),))
    return _judge_gpus(request, worth.gpus, team, world) if team is not None and worth.gpus else NO_GPU


def _judge_gpus(request: Allocation, gpus: Units, team: Team, world: World) -> Decision:
    found = [world.pod(uid) for uid in dict.fromkeys(request.pods)]
    pods = [pod for pod in found if pod is not None]
    if len(pods) < len(found):
        return _retry(Statement("the pods that it is reserved for are not known yet"))
    unnamed = [pod for pod in pods if request.key not in world.claims.users.keys_of(pod.uid)]
    if unnamed:
        return _judge_containers(request, unnamed[0], gpus, world)
    if world.claims.uid_of(request.key) != request.uid:
        words = "ResourceClaim {namespace}/{claim} is not known yet as it is now"
        return _retry(Statement(words, {"namespace": request.key.namespace, "claim": request.key.name}))
    charged = world.claims.users.charged_pod(request.key)
    paying = None if charged is None else world.pod(charged)
    if paying is None:
        return _retry(Statement("the pods that use it are not known yet"))
    return _judge_named(request, [paying, *(pod for pod in pods if pod.uid != charged)], gpus, team, world)


def _judge_containers(request: Allocation, pod: Resident, gpus: Units, world: World) -> Decision:
    """Return whether a claim that its pod does not name serves the pod's containers, and no more than they request."""
    if request.pods != (request.made_for,) or any(ref.template and not ref.claim for ref in pod.claims):
        words = "pod {pod} is not known yet to use ResourceClaim {claim}"
        return _retry(Statement(words, {"pod": pod.name, "claim": request.key.name}))
    charge = world.charge_of(pod.uid)
    requested = world.with_claims(pod._replace(claims=())).demand.gpus
    if charge is None or gpus > requested:
        return Deny((_changed(request, pod, gpus),))
    return _covered(charge)


def _judge_named(request: Allocation, pods: list[Resident], gpus: Units, team: Team, world: World) -> Decision:
    """Return whether the first of the pods, which is charged for the claim, was admitted with as many GPUs."""
    charge = world.charge_of(pods[0].uid)
    for pod in pods:
        if pod.admitted is None and not isinstance(world.evidence(pod.uid), Alive):
            return _retry(Statement("pod {pod} is not known yet", {"pod": pod.name}))
        if pod.admitted is None and pod.is_managed:
            return Deny((_changed(request, pod, gpus),))
    charged = pods[0]
    if charge is None:
        return _retry(Statement("pod {pod} is not charged yet", {"pod": charged.name}))
    held = charged.admitted
    if held is None or held.policy != world.policy.hash or any(ref.group for ref in charged.claims):
        broken = _broken(charged, charge, team, world)
        return Deny(broken) if broken else _covered(charge)
    is_covered = request.uid in held.claims or charge.gpus <= held.gpus
    return _covered(charge) if is_covered else Deny((_changed(request, charged, gpus),))


def _covered(charge: Charge) -> NotApplicable:
    return NotApplicable(Reason(Code.CLAIM_COVERED, "team {team} is charged for it", {"team": charge.team}), charge)


def _broken(charged: Resident, charge: Charge, team: Team, world: World) -> tuple[Reason, ...]:
    """Return the limits that the current charge exceeds, for a pod whose admitted amount is not recorded."""
    usage = world.usage(team.name)
    account = Account(team, usage, charge.user, charged)
    request = Request(0, now=world.now)
    over = model_violation(request, team, usage, charge.model) if charge.model is not None else None
    per_pod = (
        applied for applied in applied_limits(account) if applied.is_per_pod and applied.is_exceeded_by(charge.gpus)
    )
    large = [applied.violation(Request(charge.gpus), usage) for applied in per_pod]
    return (*large, *violations(request, account), *((over,) if over is not None else ()))


def _changed(request: Allocation, pod: Resident, gpus: Units) -> Reason:
    facts: dict[str, object] = {"claim": request.key.name, "gpus": gpus, "pod": pod.name}
    if pod.admitted is None:
        words = (
            "ResourceClaim {claim} takes {gpus:GPUs}, and pod {pod} was admitted without it: the claim or its template "
            "changed after that. Delete the pod and create it again"
        )
        return Reason(Code.CLAIM_CHANGED, words, facts)
    words = (
        "ResourceClaim {claim} takes {gpus:GPUs}, its pod {pod} was admitted with {admitted:gpus}: the claim or its "
        "template changed after that. Delete the pod and create it again"
    )
    return Reason(Code.CLAIM_CHANGED, words, {**facts, "admitted": pod.admitted.gpus})


def _retry(why: Statement) -> Retry:
    return Retry(Reason(Code.CLAIM_UNKNOWN, "{why}: try again", {"why": why}))
