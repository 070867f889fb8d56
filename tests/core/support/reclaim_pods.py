"""Reclaim pods with defaults: a test states only what matters to it."""

from tests.core.support import make
from webhook.core.model.amounts import NodeName
from webhook.core.reclaim.holds import EvictionTarget, NodeHold
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod, SchedulerReport
from webhook.core.world.world import World

NOW = 100_000


def borrower(uid, count=1, *, on="n0", team="team-a", **more):
    """A borrowing pod that runs on a node."""
    return reclaim_pod(uid, count, on=on, team=team, tier="preemptible", **more)


def asker(uid, count=1, *, team="team-b", **more):
    """A guaranteed pod that waits, and for which kube-scheduler found no room."""
    more.setdefault("report", SchedulerReport(NOW, is_for_room=True))
    return reclaim_pod(uid, count, on=None, team=team, tier="guaranteed", **more)


def reclaim_pod(uid, count=1, *, on, team, tier, created=0, is_terminating=False, is_backfill=False, **more):
    node = None if on is None else NodeName(on)
    pod = make.resident(
        count, uid=uid, namespace=team, tier=tier, node=node, created=created, is_terminating=is_terminating
    )
    more.setdefault("goes_with", more.get("gang"))
    return ReclaimPod(pod._replace(is_backfill=is_backfill), **more)


def indexed(*pods, policy=None, nodes=4):
    """A world and a reclaim index with the same pods."""
    policy = policy or make.policy()
    world, reclaim_index = World(policy), ReclaimIndex(policy.reclaim)
    for number in range(nodes):
        world.set_node(make.node(f"n{number}"))
    for each in pods:
        take(each, reclaim_index, world)
    return reclaim_index, world


def take(each, reclaim_index, world):
    world.set_pod(each.pod)
    reclaim_index.set(each)


def evict(reclaim_index, uid, *, claim="b"):
    """Do what the evictor does with a victim, until the API server accepts."""
    if not reclaim_index.is_going(uid):
        hold = NodeHold(f"h-{uid}", NodeName(f"kept-{uid}"), 0, (), (EvictionTarget(uid, "team-a", uid, claim, 0),))
        for kept in (None, hold):
            reclaim_index.evictions.keep(hold.node, kept, is_going=reclaim_index.is_going)
        reclaim_index.evictions.written(hold)
        assert reclaim_index.evictions.send(uid, hold.node)
        reclaim_index.accept(uid, now=NOW)
