"""Why no node has room for a pod: which resources are short, and whether any node could ever hold it.

"Never" is judged by what nodes have at their best, used or not: of their devices they may offer fewer for a while. It
is certain, and the pod is refused, only if the pool has nodes, they have every requested resource but too little of it,
no autoscaler adds others, and no fitting node left within the last hour. Taints may go away: a pod that only taints
exclude may wait.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from webhook.core.admission.pools import EVERY_TAINT, membership
from webhook.core.model.demand import Demand
from webhook.core.model.names import PODS, ResourceName, TeamName
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import HELD, Toleration
from webhook.core.model.text import amount_text, plural
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.core.world.world import World

_TEMPORARY: Final = tuple(
    Toleration(key=key, exists=True)
    for key in (
        HELD,
        *(f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "unschedulable")),
        *(f"node.kubernetes.io/{what}-pressure" for what in ("memory", "disk", "pid")),
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    )
)
"""Tolerations of the taints that controllers add to a node and remove again."""

_MOST_TAINTS: Final = 3
_ADVICE: Final = "; where an autoscaler brings such nodes, the admin marks their pool autoscaled"


class _Reach(NamedTuple):
    """Bitmaps of nodes of the pod's pools: all, those its constraints allow (taints ignored), those with capacity."""

    members: int
    allowed: int
    able: int


def waiting_reason(pod: Pod, pools: tuple[Pool, ...], slots: int, world: World, *, team: TeamName) -> Reason:
    """Return why the pod of a team waits; `slots` are the nodes that it may use."""
    growing = ", ".join(pool.name for pool in pools if pool.is_autoscaled)
    able = world.fleet.with_capacity(pod.demand, slots)
    if growing:
        devices = _listed(pod.demand, [name for name, _ in pod.demand.devices])
        short = _why_not(pod.demand, able, team, world) if able else f"no node has {devices or 'its devices'} free now"
        return Reason(Code.NO_ROOM_NOW, f"{short}: the pod waits for the autoscaler of pool {growing}")
    if able:
        text = f"{_why_not(pod.demand, able, team, world)}: the pod waits; {_nodes(able)} could hold it"
        return Reason(Code.NO_ROOM_NOW, f"{text} when free and open")
    if lessened := world.fleet.could_hold(pod.demand, slots):
        waits = f"the pod waits; {plural(lessened.bit_count(), 'node')} could hold it with all of their devices"
        return Reason(Code.NO_ROOM_NOW, f"{_lessened(pod.demand, lessened, world)}: {waits}")
    if closed := _closed(pod, pools, world):
        text = "all nodes that could hold the pod are not ready, cordoned or held for other pods: the pod waits"
        return Reason(Code.NO_ROOM_NOW, f"{text}; {_nodes(closed)} could hold it when free and open")
    if left := _recently_left(pod, pools, world):
        text = "no current node could hold the pod: the pod waits"
        lately = f"{plural(left, 'node')} that could hold it left, or offered more, within the last hour"
        return Reason(Code.NO_ROOM_NOW, f"{text}; {lately}")
    return Reason(Code.NEVER_FITS, never_text(pod, pools, world))


def has_rejecting_room(pod: Pod, pools: tuple[Pool, ...], world: World, *, team: TeamName) -> bool:
    """Whether a node has room that is closed to the team since it rejects pods: kube-scheduler would use it."""
    closed = world.rejecting_nodes.shunned(team, world.fleet).closed
    if not closed:
        return False
    slots = 0
    for pool in pools:
        slots |= world.fleet.matching(world.joined(pod.constraints, pool))
    return bool(world.fleet.with_room(pod.demand, slots & closed & world.fleet.open_bits))


def never_refusal(pod: Pod, pools: tuple[Pool, ...], world: World) -> Reason | None:
    """Return the refusal of a pod that no node can ever hold; None if that is not certain.

    Never refused: pods with claims, whose devices may be published later, and shares that another scheduler assigns.
    """
    is_judged = pod.handling is Handling.MANAGED and not pod.claims and not pod.shares_by
    if not is_judged or world.policy.placement.mode is Mode.OFF or any(pool.is_autoscaled for pool in pools):
        return None
    if not all(world.fleet.offers(name) or world.absent_nodes.offers(name) for name, _ in pod.demand.requests):
        return None
    reach = _reach(pod, pools, world)
    if not reach.members or reach.able or _recently_left(pod, pools, world):
        return None
    return Reason(Code.NEVER_FITS, never_text(pod, pools, world) + _ADVICE)


def never_text(pod: Pod, pools: tuple[Pool, ...], world: World, *, what: str = "the pod") -> str:
    """Return why no node could hold a pod even when empty: taints, constraints, or the requested amounts."""
    reach, where = _reach(pod, pools, world), _where(pools)
    if not reach.members:
        return f"no node could hold {what}: there is none yet{where}"
    if reach.able:
        taints = ", ".join(_taints(reach.able, pod, pools, world))
        able = f"{_nodes(reach.able)}{where}"
        return f"{what} does not tolerate the taints ({taints}) of the nodes that could hold it: {able}"
    text = f"no node could hold {what}: "
    if not reach.allowed:
        number = reach.members.bit_count()
        which = f"none of the {number} nodes" if number > 1 else "the only node"
        verb = "meets" if number > 1 else "does not meet"
        return f"{text}{which}{where} {verb} its node selector and affinity; correct them"
    of = where if reach.allowed == reach.members else f"{where} that it may use"
    why = " and ".join(_too_much(pod.demand, reach.allowed, of, world))
    return f"{text}it asks for {why}; ask for less"


def _reach(pod: Pod, pools: tuple[Pool, ...], world: World) -> _Reach:
    fleet = world.fleet
    members = allowed = 0
    for pool in pools:
        members |= fleet.matching(membership(pool))
        allowed |= fleet.matching(world.joined(pod.constraints, pool).joined(tolerations=EVERY_TAINT))
    return _Reach(members, allowed, fleet.could_hold(pod.demand, allowed))


def _closed(pod: Pod, pools: tuple[Pool, ...], world: World) -> int:
    """Return the nodes that could hold the pod at their best, temporary taints ignored."""
    fleet, matching = world.fleet, 0
    for pool in pools:
        matching |= fleet.matching(world.joined(pod.constraints, pool).joined(tolerations=_TEMPORARY))
    return fleet.could_hold(pod.demand, matching)


def _recently_left(pod: Pod, pools: tuple[Pool, ...], world: World) -> int:
    return max(
        (
            world.absent_nodes.capable_count(
                pod.demand, world.joined(pod.constraints, pool).joined(tolerations=EVERY_TAINT)
            )
            for pool in pools
        ),
        default=0,
    )


def _where(pools: tuple[Pool, ...]) -> str:
    names = [pool.name for pool in pools if pool.name]
    return f" of pool{'s' * (len(names) != 1)} {', '.join(names)}" if names else ""


def _why_not(demand: Demand, able: int, team: TeamName, world: World) -> str:
    """Return what keeps a pod off the nodes with capacity for it."""
    rejecting = able & world.rejecting_nodes.shunned(team, world.fleet).closed
    if not rejecting:
        return _short(demand, able, world)
    node = world.fleet.names_of(rejecting & -rejecting)[0]
    text = rejecting_text(each for each in world.rejecting_nodes.on(node) if each.team == team)
    if (number := rejecting.bit_count()) > 1:
        text = f"{text}, as {plural(number - 1, 'other node')} did"
    rest = able & ~rejecting
    return f"{_short(demand, rest, world)}, and {text}" if rest else text


def rejecting_text(found: Iterable[ClosedNode]) -> str:
    """Return what a node did with the pods of a team, for each node."""
    return "; ".join(
        f"node {each.node} rejected {'the last ' * (each.rejections > 1)}{plural(each.rejections, 'pod')} of team "
        f"{each.team} ({each.reason})"
        for each in found
    )


def _short(demand: Demand, able: int, world: World) -> str:
    """Return what the nodes with capacity for the pod lack now."""
    fleet = world.fleet
    among = able & fleet.open_bits
    if not among:
        return "no node that could hold the pod is ready and schedulable"
    if fleet.with_room(demand, among):
        return "other pods' anti-affinity keeps the pod off the nodes with room"
    short = [name for name, amount in demand.requests if not fleet.having(name, amount, among)]
    if short:
        return f"no node has {_listed(demand, short)} free now"
    if demand.per_device is not None:
        return f"no single GPU has {_listed(demand, (demand.per_device.resource,))} free now"
    rare = [name for name, amount in demand.requests if fleet.having(name, amount, among) != among]
    return f"no node has {_listed(demand, rare)} free at once"


def _lessened(demand: Demand, slots: int, world: World) -> str:
    """Return what the first of these nodes offers less of now than it has: `gpu-0 offers 0 of 8 nvidia.com/gpu now`."""
    name = world.fleet.names_of(slots & -slots)[0]
    node = world.fleet.get(name)
    offered, at_best = ({}, {}) if node is None else (node.allocatable, node.at_best)
    listed = [f"{offered.get(each, 0)} of {at_best[each]} {each}" for each, _ in demand.requests if each in at_best]
    return f"node {name} offers {', '.join(listed)} now"


def _too_much(demand: Demand, slots: int, of: str, world: World) -> Iterable[str]:
    """Yield each resource of which the pod requests too much, with the amount of the largest node."""
    fleet, number = world.fleet, slots.bit_count()
    excessive = [(name, amount) for name, amount in demand.requests if not fleet.offering(name, amount, slots)]
    for name, amount in excessive:
        most = fleet.largest_amount(name, slots)
        largest = f"the largest of {number} nodes" if number > 1 else "the only node"
        has = f"{largest}{of} has {amount_text(name, most)}" if most else f"{_nodes(slots)}{of}: none has any"
        yield f"{name} {amount_text(name, amount)}, {has}"
    if not excessive and demand.per_device is not None:
        yield f"{_listed(demand, (demand.per_device.resource,))} on one GPU, more than any{of} has"
    elif not excessive:
        names = [name for name, _ in demand.requests if name != PODS]
        yield f"{_listed(demand, names)} together, which none of {_nodes(slots)}{of} has"


def _nodes(slots: int) -> str:
    return plural(slots.bit_count(), "node")


def _taints(nodes: int, pod: Pod, pools: tuple[Pool, ...], world: World) -> list[str]:
    """Return the taints that exclude the pod from the first of these nodes."""
    node = world.fleet.get(world.fleet.names_of(nodes & -nodes)[0])
    tolerations = [each for pool in pools for each in world.joined(pod.constraints, pool).tolerations]
    taints = () if node is None else node.taints
    untolerated = [f"{t.key}:{t.effect}" for t in taints if not any(each.tolerates(t) for each in tolerations)]
    return untolerated[:_MOST_TAINTS]


def _listed(demand: Demand, names: Iterable[ResourceName]) -> str:
    amounts = dict(demand.requests)
    return ", ".join(f"{name} {amount_text(name, amounts[name])}" for name in names)
