"""Does a whole workload fit: all of its pods together, against what its team may ever hold and what nodes there are.

What is used now plays no part: it passes. A text names no workload; whoever tells it says whose it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.admission.pools import allowed_pools
from webhook.core.admission.preflight import overlong
from webhook.core.admission.resolve_demand import count
from webhook.core.admission.unplaced import never_text
from webhook.core.model.amount import Units, exceeds, format_limit, gpus_text
from webhook.core.model.decision import Deny
from webhook.core.model.demand import in_slices
from webhook.core.model.mig_slices import slices_of
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import CONTROLLER, Handling, Pod, Requester
from webhook.core.model.policy import Team, UnknownTeam
from webhook.core.model.reason import Code, Reason
from webhook.core.model.text import plural_gpus, printable
from webhook.core.model.tier import Tier
from webhook.core.placement.slot_index import lowest_slots
from webhook.core.quota.team import user_of
from webhook.core.world.world import World


@dataclass(frozen=True, slots=True)
class Part:
    """Equal pods of a workload: one of them, and how many there are at peak; None where nobody knows."""

    role: str
    pod: Pod
    count: int | None


class _Total(NamedTuple):
    """GPU units of several parts; `told` is that in words, "at least" where a part has no number."""

    gpus: Units
    told: str


def misfits(parts: Sequence[Part], requester: Requester, world: World) -> tuple[Reason, ...]:
    """Tell every reason why these pods can never all run; none where they can, or where they ask for no GPU."""
    asking, refused = _counted(parts, requester, world)
    asking = [replace(part, pod=_at_least(part.pod, world)) for part in asking]
    return tuple(dict.fromkeys((*refused, *_together(asking, requester, world))))


def borrowed(parts: Sequence[Part], requester: Requester, world: World, *, why: str) -> tuple[Reason, ...]:
    """Tell that some of these pods would borrow, and `why` their evictions end the rest as well."""
    asking, _ = _counted(parts, requester, world)
    lending = [part for part in asking if part.pod.requested_tier is not Tier.GUARANTEED]
    if not lending:
        return ()
    tenancy = world.tenancy(lending[0].pod.namespace)
    is_open = tenancy.team is not None or world.policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE
    if tenancy.is_exempt or not is_open:
        return ()
    total = _total(asking)
    by_choice = _total([part for part in lending if part.pod.requested_tier is Tier.PREEMPTIBLE])
    share = 0 if tenancy.team is None else tenancy.team.gpus.guaranteed
    lent = max(by_choice.gpus, total.gpus - share)
    if lent <= 0:
        return ()
    text = f"borrows up to {gpus_text(min(lent, _total(lending).gpus))} of {total.told}, and {why}"
    return (Reason(Code.EVICTIONS_COUNT, text),)


def _counted(parts: Sequence[Part], requester: Requester, world: World) -> tuple[list[Part], list[Reason]]:
    """Give the parts that ask for GPUs, and why others are refused."""
    refused: list[Reason] = []
    asking = []
    for part in parts:
        counted = count(part.pod, requester, world)
        if isinstance(counted, Deny):
            refused += counted.reasons
        elif isinstance(counted, Pod) and counted.demand.gpus and part.count != 0:
            asking.append(replace(part, pod=counted))
    return asking, refused


def _at_least(pod: Pod, world: World) -> Pod:
    """Count a pod that names no product by the smallest slices that it may be bound to, where nodes offer slices."""
    sliced = world.fleet.mig_slots
    if not sliced or pod.demand.own is not None or pod.handling is not Handling.MANAGED:
        return pod
    able = world.fleet.with_capacity(pod.demand, world.fleet.matching(pod.constraints) & sliced)
    products = [model for (model, _), members in world.fleet.by_model().items() if members & able]
    demands = (in_slices(pod.demand, slices_of((product,)), world.policy.resources) for product in products)
    return pod._replace(demand=min(demands, key=lambda demand: demand.gpus, default=pod.demand))


def _together(asking: Sequence[Part], requester: Requester, world: World) -> Sequence[Reason]:
    if not asking:
        return ()
    tenancy = world.tenancy(asking[0].pod.namespace)
    if tenancy.is_exempt:
        return ()
    counted = [replace(part, count=_count(part, world)) for part in asking]
    team = tenancy.team
    if team is None:
        if world.policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE:
            return ()
        return (Reason(Code.UNKNOWN_TEAM, f"namespace {asking[0].pod.namespace} belongs to no team: no pod may start"),)
    found = [*_over_limits(counted, team, requester, world)]
    for part in counted:
        found += overlong(part.pod, world.policy)
        if part.pod.handling is Handling.MANAGED:
            found += _without_node(part, team, world)
    return found


def _over_limits(parts: list[Part], team: Team, requester: Requester, world: World) -> Iterable[Reason]:
    total = _total(parts)
    if exceeds(total.gpus, team.gpus.limit):
        text = f"needs {total.told}, team {team.name}'s limit is {format_limit(team.gpus.limit)}"
        yield Reason(Code.TEAM_LIMIT_EXCEEDED, text)
    for part in parts:
        if exceeds(part.pod.demand.gpus, team.per_pod):
            asked = f"{_called(part)} needs {plural_gpus(part.pod.demand.gpus)}"
            text = f"{asked}, team {team.name}'s limit per pod is {format_limit(team.per_pod)}"
            yield Reason(Code.POD_LIMIT_EXCEEDED, text)
    if _is_named(parts[0].pod, requester, world) and exceeds(total.gpus, team.per_user):
        text = f"needs {total.told}, team {team.name}'s limit per user is {format_limit(team.per_user)}"
        yield Reason(Code.USER_LIMIT_EXCEEDED, text)
    firm = _total([part for part in parts if part.pod.requested_tier is Tier.GUARANTEED])
    if firm.gpus > team.gpus.guaranteed:
        share = format_limit(team.gpus.guaranteed)
        text = f"asks for {firm.told} that are never borrowed, team {team.name}'s guaranteed share is {share}"
        yield Reason(Code.GUARANTEED_SHARE_USED, text)


def _without_node(part: Part, team: Team, world: World) -> Iterable[Reason]:
    """Tell why the nodes that a part may use can never hold it: all of its pods at once, on empty nodes."""
    pools = allowed_pools(part.pod, team.name, world)
    if pools.refusal is not None:
        yield pools.refusal
        return
    fleet, demand = world.fleet, part.pod.demand
    if not len(fleet) or any(pool.is_autoscaled for pool in pools.allowed):
        return
    slots = 0
    for pool in pools.allowed:
        slots |= fleet.matching(world.joined(part.pod.constraints, pool))
    able = fleet.with_capacity(demand, slots)
    asked = ", ".join(f"{name} {amount}" for name, amount in demand.devices)
    if not able:
        yield Reason(Code.NEVER_FITS, never_text(part.pod, pools.allowed, world, what=_called(part)))
        return
    if part.count is None:
        return
    yield from _over_model(part, part.count, team, able, world)
    if part.count > able.bit_count() and (room := _room(able, part, world)) < part.count:
        text = f"the nodes hold {room} of {part.count} {printable(part.role)} pods ({asked}) at once, even when empty"
        yield Reason(Code.NEVER_FITS, " ".join(text.split()))


def _over_model(part: Part, count: int, team: Team, able: int, world: World) -> Iterable[Reason]:
    """Hold pods that only one GPU model can take against the team's limit for it."""
    models = {model or NO_MODEL for (model, _), members in world.fleet.by_model().items() if members & able}
    share = team.models.get(next(iter(models))) if len(models) == 1 else None
    total = count * part.pod.demand.gpus
    if share is not None and exceeds(total, share.limit):
        text = f"needs {plural_gpus(total)} of {models.pop()}, team {team.name}'s limit is"
        yield Reason(Code.MODEL_LIMIT_EXCEEDED, f"{text} {format_limit(share.limit)}")


def _room(able: int, part: Part, world: World) -> int:
    """Count the pods that empty nodes hold at once, until there are enough."""
    slots: list[int] = []
    lowest_slots(able, able.bit_count(), slots)
    room = 0
    for name in world.fleet.names(slots):
        node = world.fleet.get(name)
        if node is not None:
            room += min(node.allocatable.get(resource, 0) // amount for resource, amount in part.pod.demand.requests)
    return room


def _count(part: Part, world: World) -> int | None:
    """Count the pods of a DaemonSet, which only the nodes tell."""
    if part.count is not None or part.pod.handling is not Handling.DAEMON_SET:
        return part.count
    return world.fleet.matching(part.pod.constraints).bit_count()


def _total(parts: Iterable[Part]) -> _Total:
    is_open = False
    gpus: Units = 0
    for part in parts:
        is_open = is_open or part.count is None
        gpus += part.pod.demand.gpus * (1 if part.count is None else part.count)
    return _Total(gpus, f"{'at least ' if is_open else ''}{plural_gpus(gpus)}")


def _called(part: Part) -> str:
    return f"one {printable(part.role)} pod" if part.role else "one pod"


def _is_named(pod: Pod, requester: Requester, world: World) -> bool:
    """Tell whether the limit per user will hold: somebody says who the user of these pods is."""
    asks = requester if pod.owner is None else CONTROLLER
    return user_of(pod, asks, world.tenancy(pod.namespace).facts, world.policy) is not None
