"""Which pools are open to a team, and what a pod in a pool requires, cached for one policy: many pods ask the same."""

from typing import Final

from webhook.core.model.names import PoolName, TeamName
from webhook.core.model.policy import Policy, Pool
from webhook.core.model.selector import Constraints

_KEPT_JOINS: Final = 1024
"""Pairs of pod constraints and pool remembered."""


class PoolAccess:
    """The pools of a policy: which are open to a team, and on what conditions a pod is in one."""

    def __init__(self, policy: Policy) -> None:
        self._pools = policy.pools
        self.selective = tuple([pool for pool in policy.pools if pool.match is not None])
        self._open: dict[TeamName, tuple[Pool, ...]] = {}
        self._joined: dict[tuple[Constraints, PoolName], Constraints] = {}

    def open_to(self, team: TeamName) -> tuple[Pool, ...]:
        """List the pools that any pod of a team may use: those without a `match` of their own."""
        known = self._open.get(team)
        if known is None:
            known = tuple(pool for pool in self._pools if pool.match is None and pool.admits(team))
            self._open[team] = known
        return known

    def joined(self, constraints: Constraints, pool: Pool) -> Constraints:
        """Add a pool's conditions to a pod's own."""
        if not (pool.node_selector or pool.affinity or pool.tolerations):
            return constraints
        key = (constraints, pool.name)
        known = self._joined.get(key)
        if known is None:
            known = constraints.joined(
                node_selector=pool.node_selector, requirements=pool.affinity, tolerations=pool.tolerations
            )
            if known.is_small:
                if len(self._joined) >= _KEPT_JOINS:
                    self._joined.clear()
                self._joined[key] = known
        return known
