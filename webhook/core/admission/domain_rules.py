"""Domains of gangs, nodes of claims.

The check at device allocation: kube-scheduler assigns devices to a claim.

Until allocation a claim can be deleted and created again, larger, under the same name, or a template can change before
its claim is created: pods refer to both by name. So a claim may request more than its pods were admitted with. An
allocated claim cannot change. All claims of a pod together are compared with what it was admitted with: several may
have grown, each by little.

The claim that kube-scheduler makes for the extended resources of a pod's containers is named by no pod; at this time
not even by the status of its own. What it says of itself is the tenant's to write, so it is recognized by that: the
pod that it is reserved for does not name it.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from webhook.core.admission.assessment import NO_GPU, Assessment, default_team, unknown_team
from webhook.core.admission.pools import EVERY_TAINT, allowed_pools, grows, unknown_gpu
from webhook.core.devices.claim_users import ClaimKey, ClaimSpec
from webhook.core.model.amounts import TeamName, Uid, Units
from webhook.core.model.constraints import (
    ANYWHERE,
    DomainPlace,
    DomainRequest,
    Gang,
    Operator,
    Requirement,
    asked_levels,
    levels_to_try,
)
from webhook.core.model.decision import Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.model.node import Node
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.policy import Mode, Team, UnknownGpu
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.placement.domains import (
    DomainRoom,
    EmptyRoom,
    EqualPods,
    FreeRoom,
    cluster_room,
    domain_of,
    domain_rooms,
)
from webhook.core.quota.charges import Alive
from webhook.core.quota.limits import Account, Request, applied_limits, model_violation, violations
from webhook.core.quota.shares import exempt_reason
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


# One domain for the members of a gang, such as one rack: what the nodes could hold, and where later members go.


def request_of(gang: Gang, world: World) -> DomainRequest | None:
    """Return the domain that a gang asks for: by its pods, or by its PodGroup."""
    return gang.domain if gang.domain is not None else world.group_domains.get(gang.id)


def kinds_of(pods: Iterable[Pod], team: TeamName, world: World, *, ignores_taints: bool = False) -> list[EqualPods]:
    """Return equal pods of a gang together, with the slots that they may use by their pools and their own rules."""
    alike: dict[Hashable, tuple[Pod, int]] = {}
    for pod in pods:
        labels = tuple(sorted(pod.labels.items())) if world.pools.selective else None
        key = (pod.demand, pod.constraints, pod.pool, pod.requires, pod.claims, labels)
        first, number = alike.get(key, (pod, 0))
        alike[key] = first, number + 1
    return [_kind(pod, number, team, world, ignores_taints=ignores_taints) for pod, number in alike.values()]


def _kind(pod: Pod, number: int, team: TeamName, world: World, *, ignores_taints: bool) -> EqualPods:
    slots, demand = 0, pod.demand
    if pod.needs_resolution:
        demand = world.with_claims(pod).demand
    for pool in allowed_pools(pod, team, world).allowed:
        joined = world.pools.joined(pod.constraints, pool)
        slots |= world.fleet.matching(joined.joined(tolerations=EVERY_TAINT) if ignores_taints else joined)
    return EqualPods(demand, number, slots)


def domain_refusal(pods: Sequence[Pod], request: DomainRequest | None, team: TeamName, world: World) -> Reason | None:
    """Return why no domain could hold these pods, even when empty, where one is required; None if that is not certain.

    It is not certain where an autoscaler adds nodes, no node is known that they may use, one left lately, or several
    pods share the devices of a claim. Callers name the gang or workload before the text.
    """
    if request is None or not request.is_required:
        return None
    if len(pods) > 1 and any(_shares_devices(pod, world) for pod in pods):
        return None
    kinds = kinds_of(pods, team, world, ignores_taints=True)
    fleet = world.fleet
    if len(pods) == 1 and fleet.could_hold(kinds[0].demand, kinds[0].slots & fleet.domains(request.key).bits):
        return None  # without a pass over the nodes
    if not all(kind.slots for kind in kinds) or any(_may_change(pod, request.key, team, world) for pod in pods):
        return None
    (level,) = asked_levels(request, world.policy.topology.levels)
    rooms = domain_rooms(fleet, level, kinds, EmptyRoom(fleet))
    if rooms.enough:
        return None
    return Reason(Code.NEVER_FITS, *_never(request, len(pods), rooms.best))


def _shares_devices(pod: Pod, world: World) -> bool:
    return bool(pod.claims) and any(world.claims.shared_by(pod.uid, pod.namespace, pod.claims))


def gang_refusal(pods: Sequence[Pod], gang: Gang, team: TeamName, world: World) -> Reason | None:
    """Return why these members of a gang could never start together, even if no pod ran; None if that is not certain.

    No domain could hold them where they require one, or all nodes together could not.
    """
    found = domain_refusal(pods, request_of(gang, world), team, world) or _cluster_refusal(pods, team, world)
    if found is None:
        return None
    return Reason(found.code, "gang {gang} {refusal}", {"gang": gang.name, "refusal": found.statement})


def _cluster_refusal(pods: Sequence[Pod], team: TeamName, world: World) -> Reason | None:
    """Return why all nodes together could not hold these pods; None if that is not certain, as of a pod alone."""
    if len(pods) == 1 or world.policy.placement.mode is Mode.OFF or any(pod.claims or pod.shares_by for pod in pods):
        return None
    kinds, fleet = kinds_of(pods, team, world, ignores_taints=True), world.fleet
    able = [fleet.could_hold(kind.demand, kind.slots).bit_count() for kind in kinds]
    if not all(able) or sum(kind.number for kind in kinds) <= min(able):  # one each: without a pass over the nodes
        return None
    if any(_may_change(pod, None, team, world) for pod in pods):
        return None
    holds, is_enough = cluster_room(fleet, kinds, EmptyRoom(fleet))
    if is_enough:
        return None
    words = (
        "has {pods:pod}, and the nodes that they may use hold {holds} of them when empty: it can never start whole; "
        "make it smaller"
    )
    return Reason(Code.NEVER_FITS, words, {"pods": len(pods), "holds": holds})


def gang_warnings(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    """Return what is ignored of what a pod says about its gang and domains; `request` is the domain it asks for."""
    ignored = _ignored_domain(pod, request, world)
    return (
        (Reason(Code.GANG_IGNORED, "{problem}", {"problem": pod.gang_problem}), *ignored)
        if pod.gang_problem
        else ignored
    )


def _ignored_domain(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    if pod.domain_problem:
        return (Reason(Code.TOPOLOGY_IGNORED, "{problem}", {"problem": pod.domain_problem}),)
    if request is None or not request.key or request.is_required or not len(world.fleet):
        return ()
    if world.fleet.domains(request.key).bits:
        return ()
    words = "no node has label {key}: the gang is placed as if it did not prefer one such domain"
    return (Reason(Code.TOPOLOGY_IGNORED, words, {"key": request.key}),)


def place_beside(pod: Pod, world: World) -> DomainPlace | None:
    """Return the domain of a pod whose gang has started: the smallest with room that has the others; None if none.

    What is required is kept to without room, too: the pod waits.
    """
    if pod.gang is None or not world.gangs.has_started(pod.gang.id):
        return None
    if (node := _node_of_others(pod.gang, world)) is None:
        return None
    request = request_of(pod.gang, world)
    if request == ANYWHERE:
        return None
    last = None
    for level in levels_to_try(request, world.policy.topology.levels):
        if (found := domain_of(node, level)) is not None:
            name, requirements = found
            is_required = request is not None and request.is_required
            last = DomainPlace(name, requirements, is_required, "with the other pods of its gang")
            slots = world.fleet.matching(pod.constraints.joined(requirements=requirements))
            if world.fleet.with_room(pod.demand, slots & world.fleet.open_bits):
                return last
    return last if last is not None and last.is_required else None


def place_of_node(gang: Gang | None, node: Node | None, world: World) -> DomainPlace | None:
    """Return the domain that a gang requires, where a member of it is charged on a node already."""
    request = None if gang is None else request_of(gang, world)
    if request is None or not request.is_required or node is None:
        return None
    (level,) = asked_levels(request, world.policy.topology.levels)
    found = domain_of(node, level)
    return None if found is None else DomainPlace(*found, is_required=True, why="charged there")


def _node_of_others(gang: Gang, world: World) -> Node | None:
    first = world.gangs.first(gang.id)
    pod = None if first is None else world.pod(first)
    name = None if pod is None else pod.node or pod.promised
    return None if name is None else world.fleet.get(name)


def _may_change(pod: Pod, key: str | None, team: TeamName, world: World) -> bool:
    """Whether an autoscaler may add nodes for a pod, or nodes with this label that could hold it left lately.

    None: nodes with any labels.
    """
    labeled = () if key is None else (Requirement(key, Operator.EXISTS),)
    return any(
        grows(pool, world)
        or world.absent_nodes.capable(
            pod.demand, world.pools.joined(pod.constraints, pool).joined(requirements=labeled, tolerations=EVERY_TAINT)
        )
        for pool in allowed_pools(pod, team, world).allowed
    )


def _never(request: DomainRequest, number: int, largest: DomainRoom | None) -> Statement:
    facts: dict[str, object] = {"key": request.key, "pods": number}
    if largest is None:
        words = "requires one {key} for {pods:pod}, and no node that it may use has this label; correct the key"
        return Statement(words, facts)
    words = (
        "requires one {key} for {pods:pod}, and the largest, {domain}, holds {holds} of them when empty: it can never "
        "start whole; make it smaller, or ask for a larger domain"
    )
    return Statement(words, {**facts, "domain": largest.name, "holds": largest.holds})


# What a pod asks for, or says of itself, that is ignored: warnings on a pod that is admitted all the same.


def ignored_requests(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    """Return what is ignored of what a pod says of itself; `request` is the domain that it asks for."""
    own = ((Code.RUN_TIME_IGNORED, pod.run_time.problem), (Code.MINIMUM_IGNORED, pod.replica.problem))
    if request is None and not (pod.domain_problem or pod.gang_problem or own[0][1] or own[1][1]):
        return ()
    found = gang_warnings(pod, request, world)
    return (*found, *(Reason(code, "{problem}", {"problem": problem}) for code, problem in own if problem))


# The domains that a gang may be placed in, and what each holds now: for people who ask why it waits.


MAX_SHOWN: Final = 10
"""Domains of a level that are shown: there are as many as nodes."""


class DomainStep(NamedTuple):
    """One level of domains: the best of them, how many there are, and how many have room for all pods."""

    key: str
    rooms: tuple[DomainRoom, ...]
    number: int
    enough: int


class DomainSteps(NamedTuple):
    """The levels of a gang, the smallest first, for so many `pods` of it: those that wait, and the one in question.

    `required` is the key of the domain that it requires, "" if it needs none.
    """

    pods: int
    required: str
    levels: tuple[DomainStep, ...]


def domain_steps(assessed: Assessment, world: World) -> DomainSteps | None:
    """Return the domains of a pod's gang; None if it has none."""
    pod = assessed.pod
    if pod.gang is None or assessed.early_decision is not None or world.gangs.has_started(pod.gang.id):
        return None
    request = request_of(pod.gang, world)
    levels = levels_to_try(request, world.policy.topology.levels)
    if not levels:
        return None
    members = {each.uid: each.pod for each in world.waiting.of_gang(pod.gang.id)}
    members[pod.uid] = pod
    kinds = kinds_of(members.values(), assessed.team.name, world)
    found = []
    for level in levels:
        rooms = domain_rooms(world.fleet, level, kinds, FreeRoom(world.fleet))
        shown = (*rooms.enough, *rooms.small)[:MAX_SHOWN]
        found.append(DomainStep(level.key, shown, rooms.number, rooms.enough_number))
    required = request.key if request is not None and request.is_required else ""
    return DomainSteps(len(members), required, tuple(found))
