"""Moves that are tried, kept and taken back."""

from tests.addons.moves.made import ONE, movable, target, tried
from tests.core.support.make import GPU
from tests.core.support.scenes import NOW
from webhook.addons.moves.candidates import Room
from webhook.addons.moves.search import cheapest_moves


def test_what_moves_counts_against_its_budget_and_its_workload_until_it_is_taken_back():
    pods = [movable(f"a{n}", 1, on=f"n{n}", guards=(ONE,), workload="w") for n in range(2)]
    cluster = tried(pods, left={ONE: 1}, per_workload=1)
    before = cluster.savepoint()
    found = cheapest_moves(target(4), cluster, now=NOW)
    cluster.move(found)
    cluster.take(found.node, found.target.uid, found.target.demand)
    assert [cluster.on(name) for name in ("n0", "n1")] == [[], []]
    assert [cluster.fleet.free(name, GPU) for name in ("n0", "n1")] == [0, 2]
    cluster.withdraw(Room((found,)), before)
    assert [len(cluster.on(name)) for name in ("n0", "n1")] == [1, 1]
    assert [cluster.fleet.free(name, GPU) for name in ("n0", "n1")] == [3, 3]
