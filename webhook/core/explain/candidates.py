"""The candidate nodes for a pod: the best with their costs, and what excludes the others.

For explanations, not for decisions: it visits every node.
"""

from enum import StrEnum
from typing import NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName
from webhook.core.model.selector import HELD, Constraints, Toleration
from webhook.core.model.text import natural_sort_key
from webhook.core.model.tier import Tier
from webhook.core.peers.topology_filter import NO_SPREAD, TopologyFilter
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.placement import best_nodes
from webhook.core.placement.rejecting_nodes import NOTHING_SHUNNED, Shunned
from webhook.core.placement.score import Cost


class Cause(StrEnum):
    """What excludes a node, the first that applies."""

    NOT_READY = "not ready"
    CORDONED = "cordoned"
    HELD = "held for waiting pods"
    REJECTS = "rejected the team's last pods"
    CONSTRAINTS = "selectors, affinity or taints"
    NEVER = "too small even when empty"
    LESSENED = "offers fewer devices now than it has"
    DEVICES = "no room on single GPUs"


class Candidate(NamedTuple):
    """A node that has room; `cost` is None if it has no GPUs of the compared resource."""

    node: NodeName
    cost: Cost | None


class Filtered(NamedTuple):
    """A cause, or a text with the label or resource, and the nodes that it excludes, by name."""

    cause: str
    names: tuple[NodeName, ...]


class Candidates(NamedTuple):
    """The best nodes in order, the number of nodes with room, and the others by cause, the most frequent first."""

    best: tuple[Candidate, ...]
    with_room: int
    filtered: tuple[Filtered, ...]


def candidates(
    fleet: Fleet,
    demand: Demand,
    constraints: Constraints,
    *,
    tier: Tier,
    count: int = 5,
    keep_whole: int = 0,
    spread: TopologyFilter = NO_SPREAD,
    shunned: Shunned = NOTHING_SHUNNED,
) -> Candidates:
    """Return the candidates among all nodes; `constraints` are those of the pod and its pool.

    `shunned` are the nodes that its team does not use, or takes last.
    """
    matching = fleet.matching(constraints)
    usable = matching & fleet.open_bits & ~shunned.closed
    spread_slots = spread.narrowed(usable, lambda among: fleet.with_room(demand, among))
    best = ranked(fleet, demand, spread_slots, shunned=shunned, count=count, tier=tier, keep_whole=keep_whole)
    room = fleet.with_room(demand, usable & spread.allowed)
    able, could = fleet.with_capacity(demand, matching), fleet.could_hold(demand, matching)
    matching_if_held = fleet.matching(_with_held(constraints))
    causes: dict[str, list[NodeName]] = {}
    for node in fleet.nodes():
        if not room & fleet.bit(node.name):
            cause = _cause(
                fleet,
                node.name,
                demand,
                matching=matching,
                matching_if_held=matching_if_held,
                able=able,
                could=could,
                spread=spread,
                closed=shunned.closed,
            )
            causes.setdefault(cause, []).append(node.name)
    return Candidates(
        tuple([Candidate(name, _cost(fleet, name, demand, tier)) for name in best]),
        room.bit_count(),
        tuple(
            Filtered(cause, tuple(sorted(names, key=natural_sort_key)))
            for cause, names in sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
    )


def ranked(
    fleet: Fleet, demand: Demand, among: int, *, shunned: Shunned, count: int, tier: Tier, keep_whole: int
) -> tuple[NodeName, ...]:
    """Return the best of some nodes in order, those last that a team takes last."""
    found: tuple[NodeName, ...] = ()
    for part in (among & ~shunned.last, among & shunned.last):
        found += tuple(best_nodes(fleet, demand, part, count=count, tier=tier, keep_whole=keep_whole))
    return found[:count]


def _with_held(constraints: Constraints) -> Constraints:
    return constraints.joined(tolerations=(Toleration(HELD, exists=True),))


def _cost(fleet: Fleet, name: NodeName, demand: Demand, tier: Tier) -> Cost | None:
    resource = fleet.gpus.resource_for(demand)
    if resource is None:
        return None
    view = fleet.gpus.view(resource)
    ranking = view.ranking(demand, resource, tier)
    number = max(view.classes.numbers(fleet.bit(name)))
    return ranking.cost(view.classes.all[number]) if number >= 0 else None


def _cause(
    fleet: Fleet,
    name: NodeName,
    demand: Demand,
    *,
    matching: int,
    matching_if_held: int,
    able: int,
    could: int,
    spread: TopologyFilter,
    closed: int,
) -> str:
    node, bit = fleet.get(name), fleet.bit(name)
    if node is not None and not node.is_ready:
        return Cause.NOT_READY
    if node is not None and node.is_cordoned:
        return Cause.CORDONED
    if not matching & bit:
        return Cause.HELD if matching_if_held & bit else Cause.CONSTRAINTS
    if not able & bit:
        return Cause.LESSENED if could & bit else Cause.NEVER
    if closed & bit:
        return Cause.REJECTS
    if (why := topology_obstacle(spread, bit)) is not None:
        return why
    short = next((resource for resource, amount in demand.requests if fleet.free(name, resource) < amount), None)
    return Cause.DEVICES if short is None else f"too little {short} free"


def topology_obstacle(spread: TopologyFilter, bit: int) -> str | None:
    """Return which topology rule excludes a node; None if none does."""
    for each in spread.hard:
        if not each.domains.bits & bit:
            return f"no label {each.rule.key}, the topology key of a spread constraint"
        if not each.allowed & bit:
            return f"too many matching pods in its {each.rule.key}"
    broken = next((rule for rule in spread.affine if not rule.allowed & bit), None)
    if broken is None:
        return None
    where = ", ".join(broken.rule.keys)
    if not broken.rule.is_anti:
        return f"no pod of the pod's affinity in its {where}"
    which = "of the pod's anti-affinity" if broken.is_own else "with anti-affinity to the pod"
    return f"pods {which} in its {where}"
