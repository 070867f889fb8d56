"""Whether a whole workload fits: all of its pods together, compared with the team's limits and the nodes.

Current usage is ignored, since it ends. Messages do not name the workload: callers add it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.domain_rules import domain_refusal, ignored_requests
from webhook.core.admission.pools import may_grow
from webhook.core.admission.queueing import can_queue, may_wait_for_borrowers
from webhook.core.admission.unplaced import any_model, could_hold, never_fits
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.devices.claims import Instead
from webhook.core.model.amounts import Units
from webhook.core.model.constraints import MAX_MEMBERS, DomainRequest, Tier
from webhook.core.model.decision import Deny
from webhook.core.model.demand import in_slices
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import CONTROLLER, Handling, Pod, Requester
from webhook.core.model.policy import Policy, Team, UnknownTeam
from webhook.core.model.reasons import Code, Reason, Resource, Statement
from webhook.core.placement.devices import lowest_slots
from webhook.core.quota.limits import AppliedLimit, applied_limits, limits_on_model
from webhook.core.world.world import World


@dataclass(frozen=True, slots=True)
class Part:
    """Equal pods of a workload: one of them, their number at peak, None if unknown, and the domain they ask for.

    `is_gang`: by their annotations they start together or not at all, whatever policy says.
    """

    role: str
    pod: Pod
    count: int | None
    domain: DomainRequest | None = None
    is_gang: bool = False


class _GpuPart(NamedTuple):
    """A part with GPUs, assessed; `number` is its number of pods, None if unknown.

    `shared` is what claims that its pods share, with those of other parts as well, count of the demand of one.
    """

    role: str
    assessed: Assessment
    number: int | None
    domain: DomainRequest | None = None
    is_gang: bool = False
    shared: tuple[tuple[ClaimKey, Units], ...] = ()

    @property
    def pod(self) -> Pod:
        """One of its pods, with its demand resolved."""
        return self.assessed.pod

    @property
    def label(self) -> Statement:
        """The name of one of its pods in messages."""
        return Statement("one {role} pod", {"role": self.role}) if self.role else Statement("one pod")


class _Total(NamedTuple):
    """GPU units of several parts; `is_open_ended`: a part has no number, and there are more of them."""

    gpus: Units
    is_open_ended: bool

    @property
    def amount(self) -> Statement:
        """The amount in messages."""
        return Statement("at least {gpus:GPUs}" if self.is_open_ended else "{gpus:GPUs}", {"gpus": self.gpus})


def fit_problems(parts: Sequence[Part], requester: Requester, world: World) -> tuple[Reason, ...]:
    """Return every reason why these pods can never all run; none if they can, or if they request no GPU."""
    gpu_parts, refused = _assessed(parts, requester, world)
    return tuple(dict.fromkeys((*refused, *_problems([_at_least(part, world) for part in gpu_parts], world))))


def borrowed(parts: Sequence[Part], requester: Requester, world: World, *, why: str) -> tuple[Reason, ...]:
    """Return the warning that some of these pods would borrow; `why` states how their evictions affect the rest."""
    gpu_parts, _ = _assessed(parts, requester, world)
    borrowing = [part for part in gpu_parts if part.pod.requested_tier is not Tier.GUARANTEED]
    if not borrowing:
        return ()
    tenancy = world.tenancy(borrowing[0].pod.namespace)
    may_borrow = tenancy.team is not None or world.policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE
    if tenancy.is_exempt or not may_borrow:
        return ()
    total = _total(gpu_parts)
    by_choice = _total([part for part in borrowing if part.pod.requested_tier is Tier.PREEMPTIBLE])
    share = 0 if tenancy.team is None else tenancy.team.gpus.guaranteed
    beyond = max(by_choice.gpus, total.gpus - share)
    if beyond <= 0:
        return ()
    facts = {"borrowed": min(beyond, _total(borrowing).gpus), "total": total.amount, "why": why}
    return (Reason(Code.EVICTIONS_COUNT, "borrows up to {borrowed:gpus} of {total}, and {why}", facts),)


def deadline_in_line(parts: Sequence[Part], requester: Requester, world: World, *, deadline: str) -> tuple[Reason, ...]:
    """Return the warning that a deadline of the workload runs on while its pods wait, if policy lets them wait."""
    gpu_parts, _ = _assessed(parts, requester, world)
    placed = [part for part in gpu_parts if part.assessed.early_decision is None]
    if not any(_may_wait(part, world.policy) for part in placed):
        return ()
    words = "{deadline} runs on while its pods are queued: raise it, or drop it"
    return (Reason(Code.DEADLINE_IN_LINE, words, {"deadline": deadline}),)


def _may_wait(part: _GpuPart, policy: Policy) -> bool:
    """Whether pods may wait in the queue: by policy, as a gang that starts whole, or until borrowers leave."""
    return part.is_gang or can_queue(part.assessed.team, policy) or may_wait_for_borrowers(part.assessed)


def _assessed(parts: Sequence[Part], requester: Requester, world: World) -> tuple[list[_GpuPart], list[Reason]]:
    """Return the parts with GPUs, and why other parts are refused."""
    refused: list[Reason] = []
    gpu_parts = []
    for part in parts:
        assessed = assess(part.pod, requester if part.pod.owner is None else CONTROLLER, world)
        if not assessed.is_counted:
            refused += assessed.early_decision.reasons if isinstance(assessed.early_decision, Deny) else ()
        elif assessed.pod.demand.gpus and part.count != 0:
            shared = world.with_claims(assessed.pod).shared if assessed.pod.claims else ()
            gpu_parts.append(_GpuPart(part.role, assessed, _pod_count(part, world), part.domain, part.is_gang, shared))
    return gpu_parts, refused


def _at_least(part: _GpuPart, world: World) -> _GpuPart:
    """Return the part counted by the smallest slices that it may be bound to, if its pods may get slices."""
    sliced, pod = world.fleet.slices.slots, part.pod
    if not sliced or pod.demand.own is not None or pod.handling is not Handling.MANAGED:
        return part
    able = world.fleet.could_hold(pod.demand, world.fleet.matching(pod.constraints) & sliced)
    names = world.fleet.slices.among(able)
    demands = (in_slices(pod.demand, (name,), world.policy.resources) for name in names)
    least = min(demands, key=lambda demand: demand.gpus, default=pod.demand)
    return part._replace(assessed=part.assessed.with_demand(least, world.policy))


def _problems(gpu_parts: Sequence[_GpuPart], world: World) -> Sequence[Reason]:
    if not gpu_parts:
        return ()
    tenancy = world.tenancy(gpu_parts[0].pod.namespace)
    if tenancy.is_exempt:
        return ()
    team = tenancy.team
    if team is None:
        if world.policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE:
            return ()
        words = "namespace {namespace} belongs to no team: no pod may start"
        return (Reason(Code.UNKNOWN_TEAM, words, {"namespace": gpu_parts[0].pod.namespace}),)
    problems = [*_over_limits(gpu_parts, team), *_in_no_domain(gpu_parts, team, world)]
    for part in gpu_parts:
        problems += part.assessed.rules
        if part.assessed.early_decision is None:  # Fairgate chooses the node
            problems += _without_node(part, team, world)
    return problems


def _in_no_domain(parts: Sequence[_GpuPart], team: Team, world: World) -> Iterable[Reason]:
    """Yield what is ignored of what the pods say of themselves, and why no domain that they require could hold them."""
    pods: list[Pod] = []
    for part in parts:
        yield from ignored_requests(part.pod, part.domain, world)
        if part.assessed.early_decision is None:
            pods += [part.pod] * min(1 if part.number is None else part.number, MAX_MEMBERS)
    request = next((part.domain for part in parts if part.domain is not None), None)
    if pods and (refusal := domain_refusal(pods[:MAX_MEMBERS], request, team.name, world)) is not None:
        yield refusal


def _over_limits(parts: Sequence[_GpuPart], team: Team) -> Iterable[Reason]:
    """Yield the limits per pod that a pod exceeds, and the other limits that the sum of their pods exceeds."""
    per_pod: list[tuple[AppliedLimit, _GpuPart]] = []
    summed: dict[AppliedLimit, list[_GpuPart]] = {}
    for part in parts:
        for applied in applied_limits(part.assessed.account._replace(usage=part.assessed.usage.emptied())):
            if applied.is_per_pod:
                per_pod.append((applied, part))
            else:
                summed.setdefault(applied, []).append(part)
    sums = [(applied, _total(some)) for applied, some in summed.items()]
    needs = [(applied, total.gpus, Statement("needs {amount}", {"amount": total.amount})) for applied, total in sums]
    needs += [(applied, part.pod.demand.gpus, _need_of_one(part)) for applied, part in per_pod]
    for applied, gpus, need in needs:
        if applied.is_exceeded_by(gpus):
            facts = {"needs": need, "owner": _owner(applied, team), "per": applied.per, "limit": applied.limit}
            yield Reason(applied.code, "{needs}, {owner}'s limit{per} is {limit:limit}", facts)
    never_borrowed = _total([part for part in parts if part.pod.requested_tier is Tier.GUARANTEED])
    if never_borrowed.gpus > team.gpus.guaranteed:
        words = "asks for {amount} that are never borrowed, team {team}'s guaranteed share is {share:limit}"
        facts = {"amount": never_borrowed.amount, "team": team.name, "share": team.gpus.guaranteed}
        yield Reason(Code.GUARANTEED_SHARE_USED, words, facts)


def _need_of_one(part: _GpuPart) -> Statement:
    return Statement("{pod} needs {gpus:GPUs}", {"pod": part.label, "gpus": part.pod.demand.gpus})


def _without_node(part: _GpuPart, team: Team, world: World) -> Iterable[Reason]:
    """Yield why the nodes that a part may use can never hold all of its pods at once, even when empty."""
    pools = part.assessed.pools
    if pools.refusal is not None:
        yield pools.refusal
        return
    fleet, demand = world.fleet, part.pod.demand
    if not len(fleet) or may_grow(pools.allowed, world):
        return
    able = could_hold(part.pod, pools.allowed, world)
    if not able:
        yield Reason(Code.NEVER_FITS, *never_fits(part.pod, pools.allowed, world, what=part.label))
        return
    yield from any_model(part.pod, able, world)
    if part.number is None:
        return
    yield from _over_model(part, part.number, team, able, world)
    if part.number > able.bit_count() and (room := _room(able, part, world)) < part.number:
        facts = {
            "room": room,
            "pods": part.number,
            "role": part.role,
            "resources": tuple([Resource(name, amount) for name, amount in demand.devices]),
        }
        words = (
            "the nodes hold {room} of {pods} {role} pods ({resources}) at once, even when empty"
            if part.role
            else "the nodes hold {room} of {pods} pods ({resources}) at once, even when empty"
        )
        yield Reason(Code.NEVER_FITS, words, facts)


def _over_model(part: _GpuPart, count: int, team: Team, able: int, world: World) -> Iterable[Reason]:
    """Yield the limit for a GPU model that pods exceed which only fit on that model."""
    models = {model or NO_MODEL for (model, _), members in world.fleet.by_model().items() if members & able}
    if len(models) != 1:
        return
    (model,) = models
    total = _total([part._replace(number=count)]).gpus
    for applied in limits_on_model(team, part.assessed.usage.emptied(), model):
        if applied.is_exceeded_by(total):
            facts = {"gpus": total, "model": model, "owner": _owner(applied, team), "limit": applied.limit}
            yield Reason(applied.code, "needs {gpus:GPUs} of {model}, {owner}'s limit is {limit:limit}", facts)


def _owner(applied: AppliedLimit, team: Team) -> Statement:
    if applied.level is None:
        return Statement("team {team}", {"team": team.name})
    return Statement("department {department}", {"department": applied.level.department.name})


def _room(able: int, part: _GpuPart, world: World) -> int:
    """Return how many pods of the part the nodes hold at once when empty; each claim that they share has its room."""
    requests = part.pod.demand.requests
    if part.shared:
        without = Instead(without=[key for key, _ in part.shared])
        requests = world.with_claims(part.pod, instead=without).demand.requests
    if not requests:
        return part.number or 0
    slots: list[int] = []
    lowest_slots(able, able.bit_count(), slots)
    room = 0
    for name in world.fleet.names(slots):
        node = world.fleet.get(name)
        if node is not None:
            room += min(node.amount_at_best(resource) // amount for resource, amount in requests)
    return room


def _pod_count(part: Part, world: World) -> int | None:
    """Return how many pods a part has; of a DaemonSet one on every node that it may use."""
    if part.count is not None or part.pod.handling is not Handling.DAEMON_SET:
        return part.count
    return world.fleet.matching(part.pod.constraints).bit_count()


def _total(parts: Iterable[_GpuPart]) -> _Total:
    """Return the sum of all pods of these parts; a claim that they share counts once."""
    is_open_ended = False
    gpus: Units = 0
    shared: dict[ClaimKey, Units] = {}
    for part in parts:
        is_open_ended = is_open_ended or part.number is None
        own = part.pod.demand.gpus - sum(units for _, units in part.shared)
        gpus += own * (1 if part.number is None else part.number)
        shared.update(part.shared)
    return _Total(gpus + sum(shared.values()), is_open_ended)
