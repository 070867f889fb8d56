"""Pods that wait together, against every choice of nodes and victims for all of them."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.core.support.make import GPU, gpus
from tests.core.support.scenes import APART, APP, NOW, causes, cheapest, gone, scene, scenes, victim, waiting
from tests.examples import examples
from webhook.core.model.amounts import TeamName
from webhook.core.reclaim import joint_plan
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.victims import GuardId, VictimCost

# -- what one after the other would miss


def test_a_victim_larger_than_each_pod_serves_two_of_them():
    """One pod after the other takes single GPUs that fit exactly, and loses more work by them."""
    large = [victim("large", 2, saved=NOW - 10)]
    exact = [victim(f"s{n}", on="n1", saved=NOW - 50) for n in range(2)]
    there = scene([*large, *exact], nodes=2, size=2)
    assert gone(plan([waiting("b0"), waiting("b1", since=1)], there)) == ["large"]
    assert gone(plan([waiting("b0")], there)) == ["s0"], "alone it needs no more"


def test_a_gang_of_victims_on_several_nodes_makes_room_for_several_pods():
    """For one pod alone it is broken, and is more than it needs; for all of them no pod of it is lost for nothing."""
    gang = [victim(f"g{n}", 8, on=f"n{n}", gang="train", saved=NOW - 10) for n in range(2)]
    singles = [victim(f"s{n}-{k}", on=f"n{n}", saved=NOW - 50) for n in (2, 3) for k in range(8)]
    found = plan([waiting("b0", 8), waiting("b1", 8, since=1)], scene([*gang, *singles], nodes=4))
    assert sorted(gone(found)) == ["g0", "g1"]
    assert VictimCost.total(move.cost for move in found.moves)[:3] == (0, 0, 0)
    assert {move.node for move in found.moves} == {"n0", "n1"}


def test_gangs_of_victims_are_tried_where_there_are_too_many_nodes_to_try_all():
    """Four gangs of four nodes lose the least work together; each of 96 other nodes loses less than one gang."""
    gangs = [victim(f"g{n}", 8, on=f"n{n}", gang=f"gang-{n // 4}", saved=NOW - 9) for n in range(16)]
    singles = [victim(f"s{n}-{k}", on=f"n{n}", saved=NOW - 10 - n) for n in range(16, 112) for k in range(8)]
    wants = [waiting(f"b{n:02}", 8, gang="new") for n in range(16)]
    found = plan(wants, scene([*gangs, *singles], nodes=112))
    assert sorted(gone(found)) == sorted(each.name for each in gangs)
    assert VictimCost.total(move.cost for move in found.moves).gangs == 0


def test_the_node_that_only_one_pod_can_use_is_left_to_it():
    """The older pod would be cheaper there, and then the younger one had no node."""
    whole = [victim(f"w{n}", saved=NOW) for n in range(8)]
    half = [victim(f"h{n}", on="n1", saved=0) for n in range(4)]
    there = scene([*whole, *half], others=[victim("kept", 4, on="n1")], nodes=2)
    assert {each.node for move in plan([waiting("small", 4)], there).moves for each in move.victims} == {"n0"}
    found = plan([waiting("small", 4), waiting("large", 8, since=1)], there)
    assert {move.waiting.name: move.node for move in found.moves} == {"small": "n1", "large": "n0"}
    assert causes(found) == {}


def test_the_pod_that_waits_longest_is_served_where_not_all_can_be():
    there = scene([victim("a", 4)], size=4)
    found = plan([waiting("old", 3), waiting("young", 3, since=1)], there)
    assert [move.waiting.name for move in found.moves] == ["old"]
    assert causes(found) == {"young": NoPlan.NOT_ENOUGH_VICTIMS}


def test_a_gang_of_mixed_sizes_fits_whatever_the_order_of_its_pods():
    borrowed = [victim("a", 8, saved=NOW), victim("b", 5, on="n1", saved=0)]
    there = scene(borrowed, others=[victim("kept", 3, on="n1")], nodes=2)
    found = plan([waiting("x", 5, gang="new"), waiting("y", 8, gang="new")], there)
    assert sorted(gone(found)) == ["a", "b"]


@pytest.mark.parametrize("rule", [{"labels": APP, "topology": (APART,)}, {"quota": 1}], ids=["rules", "quota"])
def test_with_rules_between_pods_or_a_quota_they_are_planned_one_after_the_other(rule):
    large = [victim("large", 2, saved=NOW - 10)]
    exact = [victim(f"s{n}", on=f"n{n + 1}", saved=NOW - 50) for n in range(2)]
    quotas = {TeamName("team-a"): rule.pop("quota")} if "quota" in rule else {}
    others = [victim(f"o{n}", on=f"n{n + 1}") for n in range(2)]
    there = scene([*large, *exact], others=others, nodes=3, size=2, quotas=quotas)
    assert "large" not in gone(plan([waiting("b0", **rule), waiting("b1", since=1, **rule)], there))


def test_the_effort_is_bounded(monkeypatch):
    """Victims that all differ, on nodes that one budget links: the best so far counts then."""
    spent = []

    class Effort(joint_plan.Effort):
        def is_spent(self):
            spent.append(1)
            return super().is_spent()

    monkeypatch.setattr("webhook.core.reclaim.reclaim.Effort", Effort)
    guard = GuardId("all")
    borrowed = [
        victim(f"v{n}-{k}", on=f"n{n}", saved=NOW - 13 * n - k, team=f"t{k}", guards=(guard,))
        for n in range(40)
        for k in range(8)
    ]
    wants = [waiting(f"b{n}", 5, since=n) for n in range(8)]
    found = plan(wants, scene(borrowed, nodes=40, left={guard: 400}))
    assert len(found.moves) == 8
    assert len(gone(found)) == 40
    assert 0 < len(spent) < 1.2 * joint_plan.EFFORT


# -- against every choice


def planned(scene_, sizes, *, is_gang):
    """The rank of a plan for pods of these sizes, None where one of them has none."""
    wants = [waiting(f"b{n}", size, since=n, gang="new" if is_gang else None) for n, size in enumerate(sizes)]
    assume(not any(scene_.fleet.fits(each.name, want.demand) for each in scene_.fleet.nodes() for want in wants))
    found = plan(wants, scene_)
    total = VictimCost.total(move.cost for move in found.moves).ranked(scene_.order)
    check(scene_, found)
    return None if found.refused else total


def check(scene_, found):
    """What is evicted makes the room that is promised, and costs what the plan says."""
    free = Counter({each.name: scene_.fleet.free(each.name, GPU) for each in scene_.fleet.nodes()})
    away = [each for move in found.moves for each in move.victims]
    assert len({each.uid for each in away}) == len(away)
    for move in found.moves:
        for each in move.victims:
            free[each.node] += dict(each.demand.requests)[GPU]
        free[move.node] -= dict(move.waiting.demand.requests)[GPU]
        assert free[move.node] >= 0, "each pod has its room by its own victims and those of earlier ones"
    lost = sum(each.demand.gpus * max(0, NOW - each.saved_at) for each in away)
    assert VictimCost.total(move.cost for move in found.moves).lost_work == lost


@examples()
@given(scenes(nodes=3, size=4), st.lists(st.integers(1, 4), min_size=2, max_size=2), st.booleans())
def test_two_pods_cost_as_little_as_any_choice_for_both(scene_, sizes, is_gang):
    want = cheapest(scene_, *[waiting(count=size).demand for size in sizes])
    assert planned(scene_, sizes, is_gang=is_gang) == want


@examples(15)
@given(scenes(nodes=2, size=4), st.lists(st.integers(1, 3), min_size=3, max_size=4))
def test_a_waiting_gang_costs_as_little_as_any_choice_for_all_of_it(scene_, sizes):
    want = cheapest(scene_, *[waiting(count=size).demand for size in sizes])
    assert planned(scene_, sizes, is_gang=True) == want


@examples()
@given(scenes(nodes=2, size=4), st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_those_are_served_that_wait_longest_at_the_least_cost_for_all_of_them(scene_, sizes):
    """A younger pod is served beside an older one that cannot be, and never in its place."""
    demands = [waiting(count=size).demand for size in sizes]
    assume(not any(scene_.fleet.fits(each.name, want) for each in scene_.fleet.nodes() for want in demands))
    want = []
    for number in range(len(sizes)):
        if cheapest(scene_, *[demands[each] for each in (*want, number)]) is not None:
            want.append(number)
    found = plan([waiting(f"b{n}", size, since=n) for n, size in enumerate(sizes)], scene_)
    check(scene_, found)
    assert [move.waiting.name for move in found.moves] == [f"b{number}" for number in want]
    total = VictimCost.total(move.cost for move in found.moves).ranked(scene_.order)
    assert total == cheapest(scene_, *[demands[number] for number in want])


@st.composite
def whole_nodes(draw):
    """Nodes that gangs of pods with whole nodes, single ones and pods of one GPU borrow."""
    victims = []
    for place in range(4):
        name, saved = draw(st.sampled_from([None, "g", "h"])), NOW - draw(st.integers(0, 3))
        size = 4 if name else draw(st.sampled_from([1, 2, 4]))
        victims += [victim(f"v{place}-{n}", size, on=f"n{place}", gang=name, saved=saved) for n in range(4 // size)]
    return scene(victims, nodes=4, size=4, over_share={TeamName("team-a"): gpus(1)})


@examples()
@given(whole_nodes(), st.integers(2, 3))
def test_pods_of_whole_nodes_cost_as_little_as_any_choice_among_gangs(scene_, count):
    assert planned(scene_, [4] * count, is_gang=True) == cheapest(scene_, *[waiting(count=4).demand] * count)
