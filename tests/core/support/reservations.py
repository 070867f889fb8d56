"""Reservations that a plan makes."""

from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, borrower, indexed
from webhook.core.model.amounts import NodeName
from webhook.core.reclaim.holds import NodeHold
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.snapshot import pods_within_share, take_snapshot

NODE = NodeName("n0")
EMPTY = NodeHold("h1", NODE, 0, ())
POOR = make.policy(make.team(guaranteed=0), make.team("team-b"))


def kept(*pods):
    """A cluster, and the reservation that a plan for all its waiting pods makes on its one node."""
    reclaim_index, world = indexed(*pods, policy=POOR, nodes=1)
    found = plan(pods_within_share(reclaim_index, world), take_snapshot(reclaim_index, world, now=NOW))
    node_hold = EMPTY
    for move in found.moves:
        node_hold = node_hold.joined(move, at=NOW, until=NOW + 90)
    return reclaim_index, world, node_hold


def full(**more):
    return [borrower(f"a{n}", on="n0", started_at=n, **more) for n in range(10)]
