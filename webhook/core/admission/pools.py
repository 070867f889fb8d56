"""The pools that a pod may use."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from webhook.core.model.autoscaler import NODE_LABELS
from webhook.core.model.names import PoolName, TeamName
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy, Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import HELD, Constraints, NodeTerm, Operator, Requirement, Toleration
from webhook.core.model.statement import Statement
from webhook.core.world.world import World

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
    for pool in pools:  # noqa: SIM110 - one, mostly: a loop costs a third of `any`
        if grows(pool, world):
            return True
    return False


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
