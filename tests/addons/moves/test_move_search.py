"""The cheapest moves, against trying every choice."""

from hypothesis import given
from hypothesis import strategies as st

from tests.addons.moves.made import ONE, cheapest, clusters, movable, rank, target, tried
from tests.core.support.make import GPU
from tests.core.support.scenes import NOW
from tests.examples import examples
from webhook.addons.moves.candidates import NoMoves
from webhook.addons.moves.search import cheapest_moves
from webhook.core.reclaim.costs import Effort


def found(cluster, wanted=None, **more):
    return cheapest_moves(wanted or target(4), cluster, now=NOW, **more)


def names(moves):
    return [(move.pod.victim.name, move.to) for move in moves.moves]


@examples(100)
@given(clusters(), st.integers(2, 4), st.sampled_from([-1, -1, 0b0111, 0b1000]))
def test_no_other_choice_of_pods_and_places_costs_less(cluster, count, slots):
    wanted = target(count, slots=slots)
    before = [(each.name, cluster.fleet.free(each.name, GPU)) for each in cluster.fleet.nodes()]
    plan = found(cluster, wanted)
    want = cheapest(cluster, wanted)
    assert [(each.name, cluster.fleet.free(each.name, GPU)) for each in cluster.fleet.nodes()] == before
    assert (None if isinstance(plan, NoMoves) else rank(plan.moves)) == want
    assert isinstance(plan, NoMoves) or plan.is_cheapest


@given(clusters(), st.integers(1, 4))
def test_moves_overbook_no_node(cluster, count):
    before = _least(cluster)
    plan = found(cluster, target(count))
    if isinstance(plan, NoMoves):
        assert cheapest(cluster, target(count)) is None
        return
    cluster.move(plan)
    cluster.take(plan.node, plan.target.uid, plan.target.demand)
    assert all(free >= min(0, before[place]) for place, free in _least(cluster).items())


def _least(cluster):
    nodes = cluster.fleet.nodes()
    return {(each.name, name): cluster.fleet.free(each.name, name) for each in nodes for name in each.allocatable}


@given(clusters(), st.integers(1, 4), st.integers(0, 40))
def test_a_bound_of_work_gives_moves_that_are_possible_if_not_the_cheapest(cluster, count, steps):
    plan, want = found(cluster, target(count), effort=Effort(steps)), cheapest(cluster, target(count))
    if isinstance(plan, NoMoves):
        assert plan is NoMoves.TOO_MUCH_WORK or want is None
        return
    assert rank(plan.moves) >= want
    assert rank(plan.moves) == want or not plan.is_cheapest


def test_the_pod_that_saved_last_moves():
    pods = [movable("old", 1, on="n0", saved=0), movable("fresh", 1, on="n1", saved=NOW - 5)]
    assert names(found(tried(pods))) == [("fresh", "n0")]


def test_of_plans_that_lose_as_much_the_one_that_moves_fewer_gpus_wins():
    pods = [movable("a", 1, on="n0", saved=NOW), movable("b", 2, on="n0", saved=NOW)]
    assert names(found(tried(pods, sizes=(3, 4)), target(1, slots=0b01))) == [("a", "n1")]


def test_a_place_that_another_pod_needs_is_left_to_it():
    pods = [movable("bound", 1, on="n0", where=0b010), movable("free", 2, on="n0")]
    cluster = tried(pods, sizes=(3, 2, 2), fixed=[])
    assert sorted(names(found(cluster, target(3, slots=0b001)))) == [("bound", "n1"), ("free", "n2")]


def test_a_pod_that_fits_needs_no_moves():
    plan = found(tried([movable("a")]))
    assert (plan.node, plan.moves, plan.lost_work) == ("n1", (), 0)


def test_a_checkpoint_in_the_future_costs_nothing_and_gains_nothing():
    pods = [movable("forged", 1, on="n0", saved=NOW * 2), movable("fresh", 1, on="n1", saved=NOW)]
    plan = found(tried(pods))
    assert (len(plan.moves), plan.lost_work) == (1, 0)


def test_a_budget_that_allows_none_keeps_its_pods():
    pods = [movable("a", 1, on="n0", guards=(ONE,)), movable("b", 1, on="n1", guards=(ONE,))]
    assert found(tried(pods, left={ONE: 0})) is NoMoves.NOT_ENOUGH_MOVABLE
    assert len(found(tried(pods, left={ONE: 1})).moves) == 1


def test_no_more_pods_of_a_workload_move_than_the_bound_allows():
    pods = [movable(f"a{n}", 1, on="n0", workload="serve") for n in range(2)]
    assert found(tried(pods, fixed=[("n1", 1)], per_workload=1)) is NoMoves.NOT_ENOUGH_MOVABLE
    assert len(found(tried(pods, fixed=[("n1", 1)], per_workload=2)).moves) == 2


def test_free_gpus_that_are_too_few_in_all_are_not_searched():
    pods = [movable("a", 3, on="n0"), movable("b", 2, on="n1")]
    assert found(tried(pods), effort=Effort(0)) is NoMoves.TOO_FEW_FREE


def test_a_pod_that_no_node_could_hold_is_not_searched_for():
    assert found(tried([movable("a", 1)]), target(5)) is NoMoves.NO_NODE


def test_a_search_without_work_left_says_so():
    pods = [movable("a", 1, on="n0"), movable("b", 1, on="n1")]
    assert found(tried(pods), effort=Effort(0)) is NoMoves.TOO_MUCH_WORK
