"""A decision step by step: the limits, pools and nodes that were compared, and what would fit instead.

Nothing is decided here: the outcome is that of `decide`, and the steps come from the same assessment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.core.admission.admission import admit, decide
from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.domain_rules import DomainSteps, domain_steps
from webhook.core.admission.pod_rules import OldPods, old_pods
from webhook.core.admission.pools import WHOLE_CLUSTER
from webhook.core.admission.queueing import limits_in_the_way
from webhook.core.admission.unplaced import rejections
from webhook.core.admission.why_not import Cause, NodeRequest, WhyNot, why_not
from webhook.core.explain.candidates import Candidates, Excluder, NodeSearch, excluders
from webhook.core.model.amounts import Namespace, NodeName, PoolName, TeamName, Units, User
from webhook.core.model.decision import Admit, Decision, Deny
from webhook.core.model.demand import Demand, demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.policy import Policy, Pool, Team
from webhook.core.model.reasons import Code
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology
from webhook.core.quota.limits import AppliedLimit, applied_limits, applied_model_limits
from webhook.core.quota.shares import Holder
from webhook.core.world.world import World

HOLDERS: Final = 5
NO_DEMAND: Final = Demand(0, (), ())

_WAITS: Final = frozenset({Code.NO_ROOM_NOW, Code.NEVER_FITS})


class PoolStep(NamedTuple):
    """A pool: `closed` is why the pod may not use it, None if it may; then `nodes` are those of the pool.

    `node_step` is that of the node in question, None if there is none.
    """

    pool: Pool
    closed: str | None
    nodes: Candidates | None
    node_step: "NodeStep | None" = None


class NodeStep(NamedTuple):
    """The node in question: what excludes it, or its place among the nodes that have room."""

    node: NodeName
    obstacles: tuple[str, ...]
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """All steps of one decision.

    `limits` are those that apply, with their usage; `guaranteed_left` is the free part of the guaranteed share, and
    `holders` are the largest of the first limit that has no room for the pod, or of the team where all have. They are
    empty for a pod with an early decision. `smaller` is the largest smaller demand that would run now, `elsewhere` are
    the pools in which the unchanged pod would run now. Both are computed only if the pod would not run as requested.
    `domains` are those in which its gang may be placed together.
    `excluders` are the known pods whose anti-affinity excludes nodes, where the pod would not run.
    `update` are the pods that its Deployment's update replaces, where the pod would not run beside them.
    """

    pod: Pod
    team: Team | None
    user: User | None
    decision: Decision
    guaranteed_left: Units = 0
    reserved: Units = 0
    holders: tuple[tuple[str, Units], ...] = ()
    limits: tuple[AppliedLimit, ...] = ()
    pools: tuple[PoolStep, ...] = ()
    smaller: Demand | None = None
    elsewhere: tuple[PoolName, ...] = ()
    domains: DomainSteps | None = None
    update: OldPods | None = None
    excluders: tuple[Excluder, ...] = ()

    @property
    def runs_now(self) -> bool:
        """Whether the pod is admitted and has a node."""
        return _runs_now(self.decision)


def explain(pod: Pod, requester: Requester, world: World, *, node: NodeName | None = None) -> Explanation:
    """Return the decision on a new pod with every step; `node` is a node in question."""
    assessed = assess(pod, requester, world)
    decision = decide(assessed, world)
    if assessed.early_decision is not None:
        return Explanation(assessed.pod, world.tenancy(pod.namespace).team, None, decision)
    if isinstance(decision, Admit):
        assessed = assessed.with_demand(decision.demand, world.policy)
    runs_now, usage = _runs_now(decision), assessed.usage
    return Explanation(
        pod=assessed.pod,
        team=assessed.team,
        user=assessed.user,
        decision=decision,
        guaranteed_left=assessed.team.gpus.guaranteed - usage.guaranteed,
        reserved=usage.reserved,
        holders=tuple((each.name, each.gpus) for each in _holders(assessed)),
        limits=applied_limits(assessed.account) + applied_model_limits(assessed.team, usage),
        pools=tuple(_pools(assessed, world, node)),
        smaller=None if runs_now else _smaller(pod, requester, world),
        elsewhere=() if runs_now else tuple(_elsewhere(pod, requester, world)),
        domains=domain_steps(assessed, world),
        update=None if runs_now else old_pods(pod, world),
        excluders=() if runs_now else excluders(pod, world),
    )


def _holders(assessed: Assessment) -> list[Holder]:
    """Return who holds most of the limit that is in the way, or of the team's."""
    blocking = limits_in_the_way(assessed)
    return blocking[0].holders(assessed.usage) if blocking else assessed.usage.largest(HOLDERS)


def _runs_now(decision: Decision) -> bool:
    return isinstance(decision, Admit) and not any(warning.code in _WAITS for warning in decision.warnings)


def unreadable(namespace: Namespace, decision: Deny, world: World) -> Explanation:
    """Return the explanation of a pod that is refused because it cannot be read."""
    return Explanation(Pod(namespace, NO_DEMAND), world.tenancy(namespace).team, None, decision)


def _pools(assessed: Assessment, world: World, node: NodeName | None) -> Iterator[PoolStep]:
    pod, team = assessed.pod, assessed.team
    allowed = assessed.pools.allowed
    tier = assessed.tier(pod.demand, None)
    for pool in world.policy.pools or (WHOLE_CLUSTER,):
        if pool in allowed:
            constraints = world.pools.joined(pod.constraints, pool)
            peers = TopologyRequest(pod.namespace, pod.labels, pod.topology, constraints)
            avoided = world.rejecting_nodes.avoided(team.name, pod, world.fleet)
            request = NodeRequest(
                pod.demand,
                constraints,
                spread=evaluate_topology(peers, world.fleet, world.pod_counts),
                avoided=avoided._replace(last=avoided.last | world.fleet.labels.discouraged(constraints)),
            )
            search = NodeSearch(world.fleet, request, tier, keep_whole=world.policy.placement.keep_whole)
            yield PoolStep(pool, None, search.candidates(), _node_step(node, search, world, team.name))
        else:
            yield PoolStep(pool, _why_closed(pod, pool, team), None)


def _node_step(name: NodeName | None, search: NodeSearch, world: World, team: TeamName) -> NodeStep | None:
    fleet = world.fleet
    node = None if name is None else fleet.get(name)
    if node is None:
        return None
    reasons = tuple(_text(each, node, search.request, world, team) for each in why_not(node, search.request, fleet))
    return NodeStep(node.name, reasons, None if reasons else search.place_of(node.name))


def _text(found: WhyNot, node: Node, request: NodeRequest, world: World, team: TeamName) -> str:
    match found.cause:
        case Cause.UNUSED:
            return f"{found.text}; Fairgate cannot see why"
        case Cause.REJECTS:
            closed = [each for each in world.rejecting_nodes.on(node.name) if each.is_for(team, request.demand)]
            return f"{rejections(closed).text}: it is tried again later, by one pod at a time"
        case _:
            return found.text


def _why_closed(pod: Pod, pool: Pool, team: Team) -> str:
    if not pool.admits(team.name):
        return f"team {team.name} may not use it"
    if pod.pool is not None and pod.pool != pool.name:
        return f"the pod is pinned to pool {pod.pool}"
    if pool.match is not None and not pool.match.matches(pod.labels):
        return "its match selects other pods only"
    if lacking := pod.requires - pool.capabilities:
        return f"does not offer {', '.join(sorted(lacking))}"
    return "the pod is selected by another pool"


def _smaller(pod: Pod, requester: Requester, world: World) -> Demand | None:
    """Return the largest smaller demand that would run now, by binary search; other resources do not change."""
    if len(pod.demand.devices) != 1 or pod.claims:
        return None
    [(_, requested)] = pod.demand.devices
    best, low, high = None, 1, requested - 1
    while low <= high:
        middle = (low + high + 1) // 2
        demand = _resized(pod.demand, middle, world.policy)
        if demand is not None and _runs_now(admit(pod._replace(demand=demand), requester, world)):
            best, low = demand, middle + 1
        else:
            high = middle - 1
    return best


def _resized(demand: Demand, pieces: int, policy: Policy) -> Demand | None:
    """Return the demand with fewer pieces of its one device resource; None if a GPU shape or a claim fixes them."""
    if demand.counted is not None:
        return None
    per_device = demand.per_device
    if per_device is not None:
        if per_device.parts or per_device.number != 1:
            return None
        per_device = per_device._replace(amount=pieces)
    [(resource, _)] = demand.devices
    requests = {**dict(demand.requests), resource: pieces}
    return demand_of(requests, policy.resources, per_device=per_device)


def _elsewhere(pod: Pod, requester: Requester, world: World) -> Iterator[PoolName]:
    """Yield the pools that would run the pod now if it were pinned to them and required no capabilities."""
    for pool in world.policy.pools:
        if pool.name != pod.pool and _runs_now(
            admit(pod._replace(pool=pool.name, requires=frozenset()), requester, world)
        ):
            yield pool.name
