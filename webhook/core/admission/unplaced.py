"""Why no node takes a pod, by Fairgate's picture and by kube-scheduler's report.

Externally placed pods: the limits per GPU model that apply to them, and the pools that are closed to them.

A pod with `nodeName` runs on that node, a DaemonSet pod on the node that its affinity names. A pod of another scheduler
may run on every node that offers the requested resources and meets its constraints: all of these nodes count, since the
choice is not made here.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from webhook.core.admission.pools import (
    EVERY_TAINT,
    allowed_pools,
    grows,
    maintenance,
    may_grow,
    membership,
    of_unknown_devices,
)
from webhook.core.model.amounts import ANY_MODEL, PODS, GpuModel, NodeName, ResourceName, TeamName
from webhook.core.model.constraints import AMD_PARTITIONING, HELD, Constraints, Operator, Requirement, Toleration
from webhook.core.model.decision import Retry
from webhook.core.model.demand import Demand
from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import Mode, Pool, Team
from webhook.core.model.reasons import Code, Reason, Resource, Statement, compared
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.core.quota.limits import Request, model_violation
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World


class ExternalPlacement(NamedTuple):
    """The charged model, None if the team has no shares per model, and every reason to refuse the pod."""

    model: GpuModel | None
    broken: tuple[Reason, ...]


def check_externally_placed(
    pod: Pod, request: Request, team: Team, usage: TeamUsage, world: World
) -> ExternalPlacement | Retry:
    """Check an externally placed pod against the team's limits per model and the teams of the pools."""
    if not (team.has_model_shares or world.policy.pools):
        return ExternalPlacement(None, ())
    node = pod.node_name or pod.constraints.named_node
    if node is not None and world.is_live and world.fleet.get(NodeName(node)) is None:
        return Retry(Reason(Code.RACE_LOST, "node {node} is not known yet: try again", {"node": node}))
    slots = _reachable(pod, world) if node is None else world.fleet.bit(NodeName(node))
    model = _model(pod, node, slots, world) if team.has_model_shares else None
    over = None if model is None else model_violation(request, team, usage, model)
    closed = _closed(pod, team, slots, world)
    return ExternalPlacement(model, tuple(reason for reason in (over, closed) if reason is not None))


def demanded_model(constraints: Constraints, world: World) -> GpuModel | None:
    """Return the one GPU model that the constraints require, by the node labels that name models; else None."""
    labels = {label for _, label in world.fleet.by_model() if label}
    return next((GpuModel(value) for label in sorted(labels) if (value := constraints.demanded(label))), None)


def any_model(pod: Pod, slots: int, world: World) -> tuple[Reason, ...]:
    """Return the warning that a pod may run on several GPU models and asks for none; `slots` are what it may use."""
    by_model = world.fleet.by_model()
    if len(by_model) < _SEVERAL or not pod.demand.gpus or pod.pool is not None or pod.requires:
        return ()
    if any(label and pod.constraints.possible(label) for _, label in by_model):
        return ()
    able = world.fleet.with_capacity(pod.demand, slots)
    found = {model: label for (model, label), members in by_model.items() if model and members & able}
    if len(found) < _SEVERAL:
        return ()
    words = "it asks for no GPU model and may run on any of {models}: name one by nodeSelector {label}"
    return (Reason(Code.ANY_MODEL, words, {"models": tuple(sorted(found)), "label": min(found.values())}),)


def model_requirements(model: GpuModel, label: str, world: World) -> tuple[Requirement, ...]:
    """Return requirements for the nodes of one model: the label that names it, or the absence of all such labels."""
    if label:
        return (Requirement(label, Operator.IN, (model,)),)
    known = sorted({other for _, other in world.fleet.by_model() if other})
    return tuple(Requirement(other, Operator.DOES_NOT_EXIST) for other in known)


def _reachable(pod: Pod, world: World) -> int:
    """Return the nodes that offer some of the requested devices, whether free and schedulable now or not.

    One of several resources is enough: a scheduler may ignore the others, and kubelet skips what its node lacks.
    """
    fleet = world.fleet
    # taints are ignored: tolerations can be added until the pod is bound
    slots = fleet.matching(pod.constraints.joined(tolerations=EVERY_TAINT))
    if pod.claims:
        return slots
    requested = pod.demand.devices + (((DEVICE, 1),) if pod.shares_by else ())
    offering = 0
    for name, amount in requested:
        offering |= fleet.offering(name, amount, slots)
    return offering


def _model(pod: Pod, node: str | None, slots: int, world: World) -> GpuModel:
    if node is not None:
        known = world.fleet.get(NodeName(node))
        return ANY_MODEL if known is None else known.model
    demanded = demanded_model(pod.constraints, world)
    reached = {model or NO_MODEL for (model, _), members in world.fleet.by_model().items() if members & slots}
    return demanded if demanded is not None and reached <= {demanded} else ANY_MODEL


def _closed(pod: Pod, team: Team, slots: int, world: World) -> Reason | None:
    """Return the refusal if the pod may run on a node of a closed pool that is in no open pool; else None."""
    policy, fleet = world.policy, world.fleet
    if not (policy.pools and slots):
        return None
    open_pools = allowed_pools(pod._replace(pool=None, requires=frozenset()), team.name, world).allowed
    open_slots = closed_slots = 0
    for pool in policy.pools:
        members = fleet.matching(membership(pool)) & slots
        if pool in open_pools:
            open_slots |= members
        else:
            closed_slots |= members
    closed = closed_slots & ~open_slots
    if not closed:
        return None
    node = fleet.names_of(closed)[0]
    pools = tuple([pool.name for pool in policy.pools if fleet.matching(membership(pool)) & fleet.bit(node)])
    others = tuple([pool.name for pool in open_pools]) or "none"
    words = (
        "the pod may run on node {node} of pool {pools}, which is closed to it; pools that are open to it: {open}. "
        "Name the nodes of one of those by nodeSelector"
    )
    return Reason(Code.NO_POOL_ALLOWED, words, {"node": node, "pools": pools, "open": others})


# Why no node has room for a pod: which resources are short, and whether any node could ever hold it.
#
# "Never" is judged by what nodes have at their best, used or not: of their devices they may offer fewer for a while. It
# is certain, and the pod is refused, only if the pool has nodes, they have every requested resource but too little of
# it, no autoscaler adds others, and no fitting node left within the last hour. Taints may go away: a pod that only
# taints exclude may wait.


_TEMPORARY: Final = tuple(
    Toleration(key=key, exists=True)
    for key in (
        *(HELD, AMD_PARTITIONING),
        *(f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "unschedulable")),
        *(f"node.kubernetes.io/{what}-pressure" for what in ("memory", "disk", "pid")),
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    )
)
"""Tolerations of the taints that controllers add to a node and remove again."""

_MOST_TAINTS: Final = 3
_SEVERAL: Final = 2
_THE_POD: Final = Statement("the pod")
_ANYWHERE: Final = Statement("")
_WHEN_FREE: Final = "it fits on {nodes:node} once empty and open"
_CLOSED: Final = Statement("all nodes that could hold the pod are not ready, cordoned or reserved for other pods")
_LEFT: Final = Statement("no current node could hold the pod")
_NOT_OPEN: Final = Statement("no node that could hold the pod is ready and schedulable")
_KEPT_OFF: Final = Statement("other pods' anti-affinity keeps the pod off the nodes with room")
_NONE_FREE: Final = "no node has {resources} free now"

_UNUSED: Final = "kube-scheduler finds no room on node {node} for such pods, and Fairgate cannot see why"


class _Reach(NamedTuple):
    """Bitmaps of nodes of the pod's pools: all, those its constraints allow (taints ignored), those with capacity."""

    members: int
    allowed: int
    able: int


def waiting_reason(pod: Pod, pools: tuple[Pool, ...], slots: int, world: World, *, team: TeamName) -> Reason:
    """Return why the pod of a team waits; `slots` are the nodes that it may use."""
    able = world.fleet.with_capacity(pod.demand, slots)
    if maintained := world.fleet.maintained_bits & ~slots:  # cordoned ones are not among the slots
        able |= maintained & could_hold(pod, pools, world)
    if may_grow(pools, world):
        growing = tuple([pool.name for pool in pools if grows(pool, world)])
        devices = _listed(pod.demand, [name for name, _ in pod.demand.devices])
        none = (
            Statement(_NONE_FREE, {"resources": devices}) if devices else Statement("no node has its devices free now")
        )
        short = _why_not(pod, able, team, world) if able else none
        words = "{short}: the pod waits for the autoscaler" + (" of pool {pools}" if any(growing) else "")
        return Reason(Code.NO_ROOM_NOW, words, {"short": short, "pools": growing})
    if able:
        return _no_room_now(_why_not(pod, able, team, world), Statement(_WHEN_FREE, {"nodes": able.bit_count()}))
    if lessened := world.fleet.could_hold(pod.demand, slots):
        able_then = Statement("{nodes:node} could hold it with all of their devices", {"nodes": _number(lessened)})
        return _no_room_now(_lessened(pod.demand, lessened, world), able_then)
    if closed := could_hold(pod, pools, world):
        return _no_room_now(_CLOSED, Statement(_WHEN_FREE, {"nodes": _number(closed)}))
    if left := _recently_left(pod, pools, world):
        there = _present(left, world) & world.fleet.maintained_bits
        short = maintenance(there, world) if there else _LEFT
        words = (
            "{nodes:node} that could hold it offered more before"
            if there
            else "{nodes:node} that could hold it left, or offered more, within the last hour"
        )
        return _no_room_now(short, Statement(words, {"nodes": len(left)}))
    if unknown := of_unknown_devices(world):
        words = "what {nodes:node} will offer then is not known"
        return _no_room_now(maintenance(unknown, world), Statement(words, {"nodes": _number(unknown)}))
    return Reason(Code.NEVER_FITS, *never_fits(pod, pools, world))


def _no_room_now(short: Statement, hope: Statement) -> Reason:
    return Reason(Code.NO_ROOM_NOW, "{short}: the pod waits; {hope}", {"short": short, "hope": hope})


def shortage_of(reason: Reason) -> Statement:
    """Return what keeps a pod off the nodes by a `waiting_reason`, without what it may hope for."""
    short = reason.facts.get("short")
    return short if isinstance(short, Statement) else reason.statement


def without_room(reason: Reason) -> Statement:
    """Return a `waiting_reason` for a pod that waits anyway: what keeps it off the nodes, and which could hold it."""
    if "hope" not in reason.facts:
        return shortage_of(reason)
    return Statement("{short}; {hope}", reason.facts)


def has_closed_room(pod: Pod, pools: tuple[Pool, ...], world: World, *, team: TeamName) -> bool:
    """Whether kube-scheduler would use room that Fairgate does not: on nodes that reject pods, or in maintenance."""
    closed, slots = world.fleet.unmarked_bits, 0
    if world.rejecting_nodes:
        closed |= world.rejecting_nodes.avoided(team, pod, world.fleet).closed & world.fleet.open_bits
    if not closed:
        return False
    for pool in pools:
        slots |= world.fleet.matching(world.pools.joined(pod.constraints, pool))
    return bool(world.fleet.with_room(pod.demand, slots & closed))


def never_refusal(pod: Pod, pools: tuple[Pool, ...], world: World) -> Reason | None:
    """Return the refusal of a pod that no node can ever hold; None if that is not certain.

    Never refused: pods with claims, whose devices may be published later, or whose volumes may be bound again, and
    shares that another scheduler assigns.
    """
    is_judged = pod.handling is Handling.MANAGED and not (pod.claims or pod.shares_by or pod.constraints.volumes)
    if not is_judged or world.policy.placement.mode is Mode.OFF or may_grow(pools, world):
        return None
    if not all(world.fleet.offers(name) or world.absent_nodes.offers(name) for name, _ in pod.demand.requests):
        return None
    reach = _reach(pod, pools, world)
    if not reach.members or reach.able or _recently_left(pod, pools, world) or of_unknown_devices(world):
        return None
    words = "{why}; where an autoscaler brings such nodes, the admin marks their pool autoscaled"
    return Reason(Code.NEVER_FITS, words, {"why": never_fits(pod, pools, world)})


def never_fits(pod: Pod, pools: tuple[Pool, ...], world: World, *, what: Statement = _THE_POD) -> Statement:
    """Return why no node could hold a pod even when empty: taints, constraints, or the requested amounts."""
    reach, where = _reach(pod, pools, world), _where(pools)
    if not reach.members:
        return Statement("no node could hold {what}: there is none yet{where}", {"what": what, "where": where})
    if reach.able:
        words = "{what} does not tolerate the taints ({taints}) of the nodes that could hold it: {nodes:node}{where}"
        taints = tuple(_taints(reach.able, pod, pools, world))
        return Statement(words, {"what": what, "taints": taints, "nodes": _number(reach.able), "where": where})
    if not reach.allowed:
        words = (
            "no node could hold {what}: none of the {nodes} nodes{where} meets its node selector and affinity, and has "
            "its bound volumes; correct them"
            if (number := _number(reach.members)) > 1 and pod.constraints.volumes
            else "no node could hold {what}: none of the {nodes} nodes{where} meets its node selector and affinity; "
            "correct them"
            if number > 1
            else "no node could hold {what}: the only node{where} does not meet its node selector and affinity; "
            "correct them"
        )
        return Statement(words, {"what": what, "nodes": number, "where": where})
    if reach.allowed != reach.members:
        where = Statement("{where} that it may use", {"where": where})
    excess = tuple(_too_much(pod.demand, reach.allowed, where, world))
    return Statement(
        "no node could hold {what}: it asks for {excess:and}; ask for less", {"what": what, "excess": excess}
    )


def _reach(pod: Pod, pools: tuple[Pool, ...], world: World) -> _Reach:
    fleet = world.fleet
    members = allowed = 0
    for pool in pools:
        members |= fleet.matching(membership(pool))
        allowed |= fleet.matching(world.pools.joined(pod.constraints, pool).joined(tolerations=EVERY_TAINT))
    return _Reach(members, allowed, fleet.could_hold(pod.demand, allowed))


def could_hold(pod: Pod, pools: tuple[Pool, ...], world: World) -> int:
    """Return the nodes that could hold the pod at their best, temporary taints ignored."""
    fleet, matching = world.fleet, 0
    for pool in pools:
        matching |= fleet.matching(world.pools.joined(pod.constraints, pool).joined(tolerations=_TEMPORARY))
    return fleet.could_hold(pod.demand, matching)


def scattered(pod: Pod, pools: tuple[Pool, ...], world: World) -> Statement | None:
    """Return that no node has the several devices of a pod free, and the most that one has; None where one may."""
    if may_grow(pools, world):
        return None
    among = could_hold(pod, pools, world) & world.fleet.open_bits
    for name, amount in pod.demand.devices if among else ():
        if amount > 1 and not world.fleet.having(name, amount, among):
            words = "it needs {resources} on one node, most free on one: {most}"
            facts = {"resources": _listed(pod.demand, (name,)), "most": world.fleet.most_free(name, among)}
            return Statement(words, facts)
    return None


def _recently_left(pod: Pod, pools: tuple[Pool, ...], world: World) -> list[NodeName]:
    found: dict[NodeName, None] = {}
    for pool in pools:
        constraints = world.pools.joined(pod.constraints, pool).joined(tolerations=EVERY_TAINT)
        found.update(dict.fromkeys(world.absent_nodes.capable(pod.demand, constraints)))
    return list(found)


def _present(names: Iterable[NodeName], world: World) -> int:
    slots = 0
    for name in names:
        slots |= world.fleet.bit(name)
    return slots


def _where(pools: tuple[Pool, ...]) -> Statement:
    names = tuple([pool.name for pool in pools if pool.name])
    if not names:
        return _ANYWHERE
    return Statement(" of pool {pools}" if len(names) == 1 else " of pools {pools}", {"pools": names})


def _why_not(pod: Pod, able: int, team: TeamName, world: World) -> Statement:
    """Return what keeps a pod off the nodes with capacity for it."""
    maintained = able & world.fleet.maintained_bits
    if not maintained and not world.rejecting_nodes:
        return _short(pod.demand, able, world)
    rejecting = able & world.rejecting_nodes.avoided(team, pod, world.fleet).closed & ~maintained
    others: tuple[Statement, ...] = (_rejecting(rejecting, team, pod, world),) if rejecting else ()
    if maintained:
        others = (*others, maintenance(maintained, world))
    rest = able & ~(rejecting | maintained)
    if not others:
        return _short(pod.demand, able, world)
    if not rest:
        return others[0] if len(others) == 1 else Statement("{others:and}", {"others": others})
    return Statement("{short}, and {others:and}", {"short": _short(pod.demand, rest, world), "others": others})


def _rejecting(slots: int, team: TeamName, pod: Pod, world: World) -> Statement:
    """Return what the first of the nodes did that reject the team's pods."""
    node = world.fleet.names_of(slots & -slots)[0]
    found = [each for each in world.rejecting_nodes.on(node) if each.is_for(team, pod.demand)]
    said = rejections(found) if found else Statement(_UNUSED, {"node": node})
    if (number := _number(slots)) == 1:
        return said
    return Statement("{rejections}, as {nodes:other node} did", {"rejections": said, "nodes": number - 1})


def rejections(found: Iterable[ClosedNode]) -> Statement:
    """Return what a node did with the pods of a team, for each node."""
    said = tuple(
        Statement(
            "node {node} rejected the last {pods:pod} of team {team} ({reason})"
            if each.rejections > 1
            else "node {node} rejected {pods:pod} of team {team} ({reason})",
            {"node": each.node, "pods": each.rejections, "team": each.team, "reason": each.reason},
        )
        for each in found
    )
    return Statement("{rejections:;}", {"rejections": said})


def _short(demand: Demand, able: int, world: World) -> Statement:
    """Return what the nodes with capacity for the pod lack now."""
    fleet = world.fleet
    among = able & fleet.open_bits
    if not among:
        return _NOT_OPEN
    if fleet.with_room(demand, among):
        return _KEPT_OFF
    short = [Resource(name, amount) for name, amount in demand.requests if not fleet.having(name, amount, among)]
    if short:
        return Statement(_NONE_FREE, {"resources": tuple(short)})
    if demand.per_device is not None:
        listed = _listed(demand, (demand.per_device.resource,))
        return Statement("no single GPU has {resources} free now", {"resources": listed})
    rare = [name for name, amount in demand.requests if fleet.having(name, amount, among) != among]
    return Statement("no node has {resources} free at once", {"resources": _listed(demand, rare)})


def _lessened(demand: Demand, slots: int, world: World) -> Statement:
    """Return what the first of these nodes offers less of now than it has: `gpu-0 offers 0 of 8 nvidia.com/gpu now`.

    One that an operator changes goes first.
    """
    slots = slots & world.fleet.maintained_bits or slots
    name = world.fleet.names_of(slots & -slots)[0]
    node = world.fleet.get(name)
    offered, at_best = ({}, {}) if node is None else (node.allocatable, node.at_best)
    listed = tuple(
        Statement("{now} of {amount} {resource}", {"now": offered.get(each, 0), "amount": most, "resource": each})
        for each, _ in demand.requests
        if (most := at_best.get(each)) is not None
    )
    if (what := world.absent_nodes.maintained.get(name)) is not None:
        return Statement(
            "node {node} offers {offers} now: its {what}", {"node": name, "offers": listed, "what": what.value}
        )
    return Statement("node {node} offers {offers} now", {"node": name, "offers": listed})


def _too_much(demand: Demand, slots: int, where: Statement, world: World) -> Iterable[Statement]:
    """Yield each resource of which the pod requests too much, with the amount of the largest node."""
    fleet, number = world.fleet, _number(slots)
    excessive = [(name, amount) for name, amount in demand.requests if not fleet.offering(name, amount, slots)]
    for name, amount in excessive:
        requested, most = compared(name, amount, fleet.largest_amount(name, slots))
        facts = {"requested": requested, "nodes": number, "where": where}
        if not most.amount:
            yield Statement("{requested}, {nodes:node}{where}: none has any", facts)
            continue
        words = (
            "{requested}, the largest of {nodes} nodes{where} has {most:bare}"
            if number > 1
            else "{requested}, the only node{where} has {most:bare}"
        )
        yield Statement(words, {**facts, "most": most})
    if excessive:
        return
    if demand.per_device is not None:
        listed = _listed(demand, (demand.per_device.resource,))
        yield Statement("{resources} on one GPU, more than any{where} has", {"resources": listed, "where": where})
        return
    listed = _listed(demand, [name for name, _ in demand.requests if name != PODS])
    words = "{resources} together, which none of {nodes:node}{where} has"
    yield Statement(words, {"resources": listed, "nodes": number, "where": where})


def _number(slots: int) -> int:
    return slots.bit_count()


def _taints(nodes: int, pod: Pod, pools: tuple[Pool, ...], world: World) -> list[str]:
    """Return the taints that exclude the pod from the first of these nodes."""
    node = world.fleet.get(world.fleet.names_of(nodes & -nodes)[0])
    tolerations = [each for pool in pools for each in world.pools.joined(pod.constraints, pool).tolerations]
    taints = () if node is None else node.taints
    untolerated = [f"{t.key}:{t.effect}" for t in taints if not any(each.tolerates(t) for each in tolerations)]
    return untolerated[:_MOST_TAINTS]


def _listed(demand: Demand, names: Iterable[ResourceName]) -> tuple[Resource, ...]:
    amounts = dict(demand.requests)
    return tuple([Resource(name, amounts[name]) for name in names])
