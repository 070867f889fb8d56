"""Why no node has room for a pod: which resources are short, and whether any node could ever hold it.

"Never" is judged by what nodes have at their best, used or not: of their devices they may offer fewer for a while. It
is certain, and the pod is refused, only if the pool has nodes, they have every requested resource but too little of it,
no autoscaler adds others, and no fitting node left within the last hour. Taints may go away: a pod that only taints
exclude may wait.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from webhook.core.admission.maintained import maintenance, of_unknown_devices
from webhook.core.admission.pools import EVERY_TAINT, grows, may_grow, membership
from webhook.core.model.demand import Demand
from webhook.core.model.names import PODS, NodeName, ResourceName, TeamName
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import AMD_PARTITIONING, HELD, Toleration
from webhook.core.model.statement import Resource, Statement, compared
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.core.world.world import World

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
_THE_POD: Final = Statement("the pod")
_ANYWHERE: Final = Statement("")
_WHEN_FREE: Final = "{nodes:node} could hold it when free and open"
_CLOSED: Final = Statement("all nodes that could hold the pod are not ready, cordoned or held for other pods")
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
