"""Pools a pod may use; who grows or is maintained.

What is said of nodes that an operator changes: they take no new pods meanwhile, and offer something else then.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from webhook.core.model.amounts import NodeName, PoolName, TeamName
from webhook.core.model.constraints import HELD, Constraints, NodeTerm, Operator, Requirement, Toleration
from webhook.core.model.decision import Deny, Retry
from webhook.core.model.demand import in_shares
from webhook.core.model.gpu_shares import closest_name
from webhook.core.model.node import NODE_LABELS
from webhook.core.model.pod import Handling, Pod, Requester
from webhook.core.model.policy import Policy, Pool, UnknownGpu
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.world.alternatives import by_room
from webhook.core.world.world import World


def of_unknown_devices(world: World) -> int:
    """Return the nodes in maintenance of which it is not known what they had: they may come to offer anything."""
    fleet, weights, found = world.fleet, world.policy.resources, 0
    for name in world.absent_nodes.maintained:
        node = fleet.get(name) if world.absent_nodes.get(name) is None else None
        if node is not None and not any(node.recovered.offers(weights)):
            found |= fleet.bit(name)
    return found


def maintenance(slots: int, world: World) -> Statement:
    """Return what is changed on the first of some nodes, all of which an operator changes."""
    name, more = world.fleet.names_of(slots & -slots)[0], slots.bit_count() - 1
    words = (
        "node {node} takes no new pods while its {what}, nor {nodes:other node} in maintenance"
        if more
        else "node {node} takes no new pods while its {what}"
    )
    return Statement(words, {"node": name, "what": world.absent_nodes.maintained[name].value, "nodes": more})


def maintenance_texts(world: World) -> Iterator[str]:
    """Yield what is changed on each node, by name."""
    for name, what in sorted(world.absent_nodes.maintained.items()):
        yield f"{name} (its {what})"


# The pools that a pod may use.


EVERY_TAINT: Final = (Toleration(exists=True), Toleration(key=HELD, exists=True))
"""Tolerations of all taints."""

_OWNERS: Final = {
    autoscaler: tuple((Requirement(label, Operator.EXISTS),) for label in labels)
    for autoscaler, labels in NODE_LABELS.items()
}

WHOLE_CLUSTER = Pool(PoolName(""))
"""The pool of all nodes, if policy defines no pools."""


class Pools(NamedTuple):
    """The pools a pod may use, or the reason why there is none."""

    allowed: tuple[Pool, ...]
    refusal: Reason | None = None


def allowed_pools(pod: Pod, team: TeamName, world: World) -> Pools:
    """Return the pools a pod may use: by its pinned pool, a pool's `match`, the team, required capabilities."""
    policy = world.policy
    if pod.pool is not None:
        return _pinned(pod, pod.pool, team, policy)
    if not policy.pools:
        return _capable(pod, (WHOLE_CLUSTER,))
    selective = world.pools.selective
    matched = selective and [pool for pool in selective if pool.match is not None and pool.match.matches(pod.labels)]
    permitted = tuple([pool for pool in matched if pool.admits(team)]) if matched else world.pools.open_to(team)
    if permitted and not pod.requires:
        return Pools(permitted)
    if not permitted:
        others = matched or [pool for pool in policy.pools if pool.match is None]
        words = "team {team} may use none of the pools for this pod: {pools}"
        return _refused(Code.NO_POOL_ALLOWED, Statement(words, {"team": team, "pools": _names(others)}))
    return _capable(pod, permitted)


def grows(pool: Pool, world: World) -> bool:
    """Whether an autoscaler adds nodes to a pool once kube-scheduler finds no room there.

    If policy does not say, it does where an autoscaler that runs in the cluster owns one of the pool's GPU nodes, or
    where the pool has none: those of a group that is scaled to zero are still to come.
    """
    if pool.is_autoscaled is not None or not world.autoscalers:
        return bool(pool.is_autoscaled)
    nodes = gpu_nodes(pool, world)
    return not nodes or bool(nodes & owned(world))


def gpu_nodes(pool: Pool, world: World) -> int:
    """Return the slots of a pool's nodes that offer GPUs now; if none does, of those that have some at their best."""
    members, gpus = world.fleet.matching(membership(pool)), world.fleet.gpus
    if found := members & gpus.bits:
        return found
    for resource in gpus.tracked:
        found |= world.fleet.offering(resource, 1, members)
    return found


def owned(world: World) -> int:
    """Return the slots of the nodes that an autoscaler of the cluster owns, by their labels."""
    found = 0
    for autoscaler in world.autoscalers:
        for requirement in _OWNERS[autoscaler]:
            found |= world.fleet.meeting(requirement)
    return found


def may_grow(pools: Sequence[Pool], world: World) -> bool:
    """Whether an autoscaler adds nodes to one of the pools."""
    return any(pool.is_autoscaled or (world.autoscalers and grows(pool, world)) for pool in pools)


def membership(pool: Pool) -> Constraints:
    """Return the constraints that the nodes of a pool meet, taints ignored."""
    terms = (NodeTerm(pool.affinity),) if pool.affinity else None
    return Constraints(pool.node_selector, terms, EVERY_TAINT)


def _pinned(pod: Pod, pin: str, team: TeamName, policy: Policy) -> Pools:
    pool = next((pool for pool in policy.pools if pool.name == pin), None)
    facts = {"pool": pin, "team": team, "pools": _names(policy.pools)}
    if pool is None:
        words = "the pod is pinned to pool {pool}, which does not exist; pools: {pools}"
        return _refused(Code.UNKNOWN_POOL, Statement(words, facts))
    if not pool.admits(team):
        words = "the pod is pinned to pool {pool}, which team {team} may not use"
        return _refused(Code.NO_POOL_ALLOWED, Statement(words, facts))
    if pool.match is not None and not pool.match.matches(pod.labels):
        words = "the pod is pinned to pool {pool}, whose match selects other pods only"
        return _refused(Code.NO_POOL_ALLOWED, Statement(words, facts))
    return _capable(pod, (pool,))


def _capable(pod: Pod, pools: tuple[Pool, ...]) -> Pools:
    if not pod.requires:
        return Pools(pools)
    able = tuple(pool for pool in pools if pod.requires <= pool.capabilities)
    if able:
        return Pools(able)
    offers = tuple(
        Statement(
            "{pool}: {offers}",
            {"pool": pool.name or "the cluster", "offers": tuple(sorted(pool.capabilities)) or "none"},
        )
        for pool in pools
    )
    words, wanted = "no pool open to the pod offers {wanted}; they offer {offers:;}", tuple(sorted(pod.requires))
    return _refused(Code.NO_POOL_ALLOWED, Statement(words, {"wanted": wanted, "offers": offers}))


def _refused(code: Code, why: Statement) -> Pools:
    return Pools((), Reason(code, *why))


def _names(pools: Sequence[Pool]) -> tuple[str, ...] | str:
    return tuple([pool.name for pool in pools]) or "none"


# The demand of a pod with its claims, shares and slices; pods with unknown GPU resources are refused here.


_MIRROR = Handling.MIRROR
_DEFAULT_SCHEDULER = "default-scheduler"


def resolve_demand(pod: Pod, requester: Requester, world: World) -> Pod | Deny | Retry:
    """Return the pod with its complete demand: claimed devices added, resources unknown to policy checked.

    The result is idempotent. Objects that are not known yet are never guessed: they cause a Retry. Pods that are only
    counted are never refused here.
    """
    for node in claimed_nodes(pod, world) if pod.claims else ():
        pod = pod._replace(constraints=pod.constraints.on_node(node))
    is_sliced = pod.slices or (pod.node_name and world.fleet.slices.slots)
    if not (pod.claims or pod.shares_by or is_sliced) and world.claims.classes.are_ordinary(pod.demand.strange):
        return pod
    resolved = world.with_claims(pod)
    demand = resolved.demand
    if resolved.alternatives > 1:
        demand = by_room(pod, pod.constraints.joined(tolerations=EVERY_TAINT), world)
    bypasses = pod.node_name is not None and pod.shares_by in world.policy.defaults.share_schedulers
    has_problem = resolved.unknown or resolved.missing or bypasses
    if not has_problem or world.tenancy(pod.namespace).is_exempt or (pod.handling is _MIRROR and requester.is_kubelet):
        return pod._replace(demand=demand)
    if bypasses:
        return Deny((_bypassing(pod),))
    if resolved.unknown and world.policy.defaults.unknown_gpu is UnknownGpu.REJECT:
        asked = {name for name, _ in (pod.demand.own or pod.demand).requests}
        return Deny(tuple(unknown_gpu(name, world.policy, asked) for name in dict.fromkeys(resolved.unknown)))
    if resolved.missing:
        words = "not known yet: {missing}; create what is missing, or try again"
        return Retry(Reason(Code.CLAIM_UNKNOWN, words, {"missing": tuple(dict.fromkeys(resolved.missing))}))
    return pod._replace(demand=demand)


def claimed_nodes(pod: Pod, world: World) -> Iterable[NodeName]:
    """Return the nodes where the claims that a pod shares are allocated, or expected: it can run nowhere else."""
    keys = world.claims.shared_by(pod.uid, pod.namespace, pod.claims)
    return dict.fromkeys(node for key in keys if (node := world.claims.node_of(key, pod.uid)) is not None)


def as_created(pod: Pod, policy: Policy) -> Pod:
    """Return a pod of a manifest with the scheduler that HAMi's own webhook will set, as far as policy knows.

    On a live cluster that webhook runs first, and only the pod itself counts: a tenant can skip that webhook by a
    label.
    """
    schedulers = policy.defaults.share_schedulers
    if pod.shares_by == _DEFAULT_SCHEDULER and schedulers and _DEFAULT_SCHEDULER not in schedulers:
        handling = Handling.FOREIGN_SCHEDULER if pod.handling is Handling.MANAGED else pod.handling
        pod = pod._replace(shares_by=schedulers[0], handling=handling)
    return pod._replace(demand=in_shares(pod.demand, policy.resources)) if pod.shares_by in schedulers else pod


def _bypassing(pod: Pod) -> Reason:
    words = (
        "the pod asks {scheduler} for a share of a GPU and names its node {node} itself: then no scheduler keeps it to "
        "the share; remove spec.nodeName"
    )
    return Reason(Code.INVALID_REQUEST, words, {"scheduler": pod.shares_by, "node": pod.node_name})


def unknown_gpu(name: str, policy: Policy, asked: Collection[str] = ()) -> Reason:
    """Return the refusal of a resource or class that looks like a GPU and is not named in policy.

    What the pod asks for beside it (`asked`) is not what it was to be: HAMi's gpumem is no misspelled gpu.
    """
    suggestion = closest_name(name, tuple(policy.resources))
    suggestion = None if suggestion in asked else suggestion
    words = (
        "{resource} looks like a GPU, and policy does not count it; ask your admin to name it in "
        "resources with gpus or perGpu (gpus: 0 if it is none)"
        if suggestion is None
        else "{resource} looks like a GPU, and policy does not count it; did you mean {suggestion}? "
        "If not, ask your admin to name it in resources with gpus or perGpu (gpus: 0 if it is none)"
    )
    facts = {"resource": name} if suggestion is None else {"resource": name, "suggestion": suggestion}
    return Reason(Code.UNKNOWN_GPU_RESOURCE, words, facts)
