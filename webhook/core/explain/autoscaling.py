"""What is known of a cluster's autoscalers: which pools grow, and where policy and cluster do not agree."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.core.admission.pools import WHOLE_CLUSTER, gpu_nodes, grows, owned
from webhook.core.model.autoscaler import Autoscaler
from webhook.core.model.policy import Pool
from webhook.core.model.text import plural
from webhook.core.world.world import World


class PoolProblem(NamedTuple):
    """What an admin should change of a pool, and why."""

    pool: Pool
    text: str


def autoscaling_text(world: World) -> str:
    """Return which autoscalers run and which pools grow: `Karpenter; pools that grow: cloud; others: lab`."""
    pools = world.policy.pools or (WHOLE_CLUSTER,)
    growing = [pool for pool in pools if grows(pool, world)]
    others = [pool for pool in pools if pool not in growing]
    found = " and ".join(sorted(world.autoscalers)) or "none found"
    return f"{found}; pools that grow: {_names(growing)}; others: {_names(others)}"


def autoscaling_problems(world: World) -> Iterator[PoolProblem]:
    """Yield the pools of which policy says something else than the cluster, or does not say what only it can say."""
    for pool in world.policy.pools or (WHOLE_CLUSTER,):
        nodes = gpu_nodes(pool, world)
        own = (nodes & owned(world)).bit_count()
        if pool.is_autoscaled is False and own:
            who = " or ".join(sorted(world.autoscalers))
            yield PoolProblem(
                pool,
                f"is false, although {who} owns {plural(own, 'GPU node')} of the pool: pods that are bound to "
                "nodes by name bring no other; remove the field, or set true",
            )
        is_unknown = pool.is_autoscaled is None and nodes and not own
        if is_unknown and Autoscaler.CLUSTER_AUTOSCALER in world.autoscalers:
            yield PoolProblem(
                pool,
                "is not set, Cluster Autoscaler runs, and no GPU node of the pool has a label by which node groups are "
                "known: set true if it adds nodes there, false if not" + ("" if pool.name else ", in a pool"),
            )


def _names(pools: Iterable[Pool]) -> str:
    return ", ".join(pool.name or "all nodes" for pool in pools) or "none"
