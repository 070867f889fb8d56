"""A small tree: `top` over team-c and over `left`, which has team-a and team-b; team-d has no department."""

from tests.core.support.make import gpus, limit, policy, team
from webhook.core.model.amounts import DepartmentName
from webhook.core.model.policy import Department, Policy, Share


def department(
    name: str, parent: str | None = None, *, guaranteed: float = 0, limit_: float | None = None, **more
) -> Department:
    above = None if parent is None else DepartmentName(parent)
    return Department(DepartmentName(name), above, Share(gpus(guaranteed), limit(limit_)), **more)


def tree_policy(
    *, left: Department | None = None, top: Department | None = None, guaranteed: float = 0, team_limit: float = 100
) -> Policy:
    """The tree with every team guaranteed and limited equally."""
    left = left or department("left", "top")
    top = top or department("top")
    shares = {"guaranteed": guaranteed, "limit_": team_limit}
    return policy(
        team("team-a", departments=(left, top), **shares),
        team("team-b", departments=(left, top), **shares),
        team("team-c", departments=(top,), **shares),
        team("team-d", **shares),
        departments=(left, top),
    )
