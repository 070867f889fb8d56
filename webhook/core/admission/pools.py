"""The pools that a pod may use."""

from typing import Final, NamedTuple

from webhook.core.model.names import PoolName, TeamName
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy, Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import HELD, Constraints, NodeTerm, Toleration
from webhook.core.world.world import World

EVERY_TAINT: Final = (Toleration(exists=True), Toleration(key=HELD, exists=True))
"""Tolerations of all taints."""

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
    selective = world.selective_pools
    matched = selective and [pool for pool in selective if pool.match is not None and pool.match.matches(pod.labels)]
    permitted = tuple([pool for pool in matched if pool.admits(team)]) if matched else world.open_pools(team)
    if permitted and not pod.requires:
        return Pools(permitted)
    if not permitted:
        others = matched or [pool for pool in policy.pools if pool.match is None]
        names = ", ".join(pool.name for pool in others) or "none"
        return Pools((), Reason(Code.NO_POOL_ALLOWED, f"team {team} may use none of the pools for this pod: {names}"))
    return _capable(pod, permitted)


def membership(pool: Pool) -> Constraints:
    """Return the constraints that the nodes of a pool meet, taints ignored."""
    terms = (NodeTerm(pool.affinity),) if pool.affinity else None
    return Constraints(pool.node_selector, terms, EVERY_TAINT)


def _pinned(pod: Pod, pin: str, team: TeamName, policy: Policy) -> Pools:
    pool = next((pool for pool in policy.pools if pool.name == pin), None)
    if pool is None:
        known = ", ".join(pool.name for pool in policy.pools) or "none"
        return Pools(
            (), Reason(Code.UNKNOWN_POOL, f"the pod is pinned to pool {pin}, which does not exist; pools: {known}")
        )
    if not pool.admits(team):
        return Pools(
            (), Reason(Code.NO_POOL_ALLOWED, f"the pod is pinned to pool {pin}, which team {team} may not use")
        )
    if pool.match is not None and not pool.match.matches(pod.labels):
        return Pools(
            (), Reason(Code.NO_POOL_ALLOWED, f"the pod is pinned to pool {pin}, whose match selects other pods only")
        )
    return _capable(pod, (pool,))


def _capable(pod: Pod, pools: tuple[Pool, ...]) -> Pools:
    if not pod.requires:
        return Pools(pools)
    able = tuple(pool for pool in pools if pod.requires <= pool.capabilities)
    if able:
        return Pools(able)
    wanted = ", ".join(sorted(pod.requires))
    offers = "; ".join(
        f"{pool.name or 'the cluster'}: {', '.join(sorted(pool.capabilities)) or 'none'}" for pool in pools
    )
    return Pools((), Reason(Code.NO_POOL_ALLOWED, f"no pool open to the pod offers {wanted}; they offer {offers}"))
