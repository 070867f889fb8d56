"""Reclaim for a gang that asks for one domain: whole in the cheapest one, or nothing is evicted."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU
from tests.core.support.scenes import causes, gone, scene, scenes, victim, waiting
from tests.examples import examples
from webhook.core.model.amounts import GangId
from webhook.core.model.constraints import DomainRequest
from webhook.core.placement.domains import MAX_ROOMS
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victims import VictimCost

ONE = DomainRequest("rack", is_required=True)
PREFERRED = DomainRequest("rack")


def racked(scene_, *racks):
    """The scene with its nodes in these racks, in order; in zones by the last letter of the rack's name."""
    for number, rack in enumerate(racks):
        there = scene_.fleet.get(f"n{number}")
        labels = {**there.labels, "rack": rack, "zone": rack[-1]}
        scene_.fleet.set(replace(there, labels=labels))
    return scene_


def required(key):
    return DomainRequest(key, is_required=True)


def gang(count, size=8, *, domain=ONE, **more):
    return [waiting(f"b{number}", size, gang="train", domain=domain, **more) for number in range(count)]


def rack_of(scene_, move):
    return scene_.fleet.get(move.node).labels["rack"]


def total(scene_, round_):
    """The rank of the cost of a round."""
    costs = [move.cost for move in round_.moves]
    return VictimCost.total(costs).ranked(scene_.order)


def test_the_cheaper_rack_is_cleared_where_single_pods_would_take_nodes_of_both():
    cheap = [victim("a", 8, on="n0", saved=90_000), victim("b", 8, on="n1", saved=10)]
    dear = [victim("c", 8, on="n2", saved=80_000), victim("d", 8, on="n3", saved=70_000)]
    there = racked(scene([*cheap, *dear], nodes=4), "x", "x", "y", "y")
    assert sorted(gone(plan(gang(2, domain=None), there))) == ["a", "c"]
    found = plan(gang(2), there)
    assert sorted(gone(found)) == ["c", "d"]
    assert {rack_of(there, move) for move in found.moves} == {"y"}


def test_nothing_is_evicted_where_no_rack_has_room_for_the_whole_gang():
    there = racked(scene([victim(f"v{n}", 8, on=f"n{n}") for n in range(4)], nodes=4), "x", "x", "y", "y")
    found = plan(gang(3), there)
    assert (found.moves, causes(found)) == ((), dict.fromkeys(["b0", "b1", "b2"], NoPlan.NO_DOMAIN))


def test_free_room_of_the_rack_is_used_and_only_the_rest_is_made():
    borrowed = [victim("a", 8, on="n1"), victim("c", 8, on="n2"), victim("d", 8, on="n3")]
    there = racked(scene(borrowed, nodes=4), "x", "x", "y", "y")
    found = plan(gang(2), there)
    assert gone(found) == ["a"]
    assert causes(found) in ({"b0": NoPlan.FITS}, {"b1": NoPlan.FITS})


def test_a_preference_goes_on_to_a_larger_level_and_then_to_any_nodes():
    borrowed = [victim(f"v{n}", 8, on=f"n{n}", saved=n) for n in range(4)]
    there = replace(racked(scene(borrowed, nodes=4), "ax", "bx", "cy", "dy"), levels=("zone", "rack"))
    found = plan(gang(2, domain=PREFERRED), there)
    assert sorted(gone(found)) == ["v2", "v3"], "no rack, but one zone"
    assert len(gone(plan(gang(3, domain=PREFERRED), there))) == 3
    assert plan(gang(3, domain=required("zone")), there).moves == ()


def test_no_protection_is_overridden_in_one_rack_that_another_rack_has_no_need_of():
    late = {"until": 10**9, "started": 50}
    cheap = [victim("a", 8, on="n0", saved=99_000, **late), victim("b", 8, on="n1", saved=99_000, **late)]
    dear = [victim("c", 8, on="n2", saved=1), victim("d", 8, on="n3", saved=1)]
    there = racked(scene([*cheap, *dear], nodes=4), "x", "x", "y", "y")
    assert sorted(gone(plan(gang(2), there))) == ["c", "d"]


def test_the_pod_group_of_a_gang_may_ask_for_the_domain():
    borrowed = [victim(f"v{n}", 8, on=f"n{n}", saved=n) for n in (0, 3)] + [victim("v1", 8, on="n1", saved=0)]
    there = racked(scene([*borrowed, victim("v2", 8, on="n2", saved=2)], nodes=4), "x", "y", "x", "y")
    there = replace(there, group_domains={GangId("train"): ONE})
    found = plan(gang(2, domain=None), there)
    assert len({rack_of(there, move) for move in found.moves}) == 1


def test_a_domain_for_each_node_costs_no_more_than_so_many_plans(monkeypatch):
    tried = []
    place = Trial.place

    def counted(*arguments, **more):
        tried.append(arguments)
        return place(*arguments, **more)

    monkeypatch.setattr(Trial, "place", counted)
    count = 3 * MAX_ROOMS
    there = scene([victim(f"v{n}", 8, on=f"n{n}") for n in range(count)], nodes=count)
    found = plan(gang(1, domain=required("host")), there)
    assert len(gone(found)) == 1
    assert len(tried) <= MAX_ROOMS + 1


# -- properties

labels = st.lists(st.sampled_from("xyz"), min_size=3, max_size=3)


@examples()
@given(scenes(), labels, st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_all_or_nothing_in_one_rack_and_what_is_promised_is_there(scene_, racks, sizes):
    there = racked(scene_, *racks)
    wants = [waiting(f"b{n}", size, gang="train", domain=ONE) for n, size in enumerate(sizes)]
    found = plan(wants, there)
    fits = [each.waiting.uid for each in found.refused if each.cause is NoPlan.FITS]
    if not found.moves:
        assert gone(found) == []
        return
    assert len(found.moves) + len(fits) == len(wants), "whole"
    racks_used = {rack_of(there, move) for move in found.moves}
    assert len(racks_used) == 1
    (rack,) = racks_used
    free = {each.name: there.fleet.free(each.name, GPU) for each in there.fleet.nodes()}
    for each in (each for move in found.moves for each in move.victims):
        free[each.node] += dict(each.demand.requests)[GPU]
    for move in found.moves:
        free[move.node] -= dict(move.waiting.demand.requests)[GPU]
    assert all(amount >= 0 for amount in free.values())
    left = sum(amount for name, amount in free.items() if there.fleet.get(name).labels["rack"] == rack)
    assert left >= sum(size for n, size in enumerate(sizes) if f"b{n}" in fits), "those that fit are in it too"


@examples()
@given(scenes(), labels, st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_no_single_rack_would_cost_less(scene_, racks, sizes):
    """Brute force over the racks: the same gang, with the nodes of every other rack closed."""
    there = racked(scene_, *racks)
    wants = [waiting(f"b{n}", size, gang="train", domain=ONE) for n, size in enumerate(sizes)]
    found = plan(wants, there)
    alone = []
    for rack in sorted(set(racks)):
        for each in list(there.fleet.nodes()):
            there.fleet.set(replace(each, is_cordoned=each.labels["rack"] != rack))
        single = plan([replace(each, domain=None) for each in wants], there)
        if single.moves or all(each.cause is NoPlan.FITS for each in single.refused):
            alone.append(total(there, single))
    for each in list(there.fleet.nodes()):
        there.fleet.set(replace(each, is_cordoned=False))
    is_placed = bool(found.moves) or all(each.cause is NoPlan.FITS for each in found.refused)
    assert is_placed == bool(alone)
    if is_placed:
        assert total(there, found) == min(alone)


@examples()
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 50)), min_size=2, max_size=6),
    st.integers(1, 3),
)
def test_for_pods_of_whole_nodes_no_choice_of_nodes_in_a_rack_costs_less(nodes, count):
    """Brute force over the choices of nodes: each is free, or one borrower has all of it."""
    borrowed = [victim(f"v{n}", 8, on=f"n{n}", saved=1000 * saved) for n, (_, saved) in enumerate(nodes) if saved]
    there = racked(scene(borrowed, nodes=len(nodes)), *[rack for rack, _ in nodes])
    found = plan(gang(count), there)
    costs = [
        sum(100_000 - 1000 * saved for _, saved in chosen if saved)
        for rack in "xy"
        for chosen in combinations([each for each in nodes if each[0] == rack], count)
    ]
    if not costs:
        assert found.moves == ()
        return
    saved = {f"v{n}": 1000 * each for n, (_, each) in enumerate(nodes)}
    assert sum(100_000 - saved[name] for name in gone(found)) == min(costs)
