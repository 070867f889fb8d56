"""The cheapest victims on one node, against trying every choice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import gpus
from tests.core.support.scenes import (
    NOW,
    causes,
    cheapest,
    cost,
    gone,
    loses_more,
    missing,
    scene,
    scenes,
    units,
    victim,
    waiting,
)
from webhook.core.model.amounts import UNLIMITED, TeamName
from webhook.core.model.policy import ReclaimCost
from webhook.core.reclaim.costs import CostScale
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.victims import NEVER, GuardId


def test_exactly_enough_is_freed_on_one_node():
    borrowed = [victim(f"a{n}-{g}", on=f"n{n}") for n in range(3) for g in range(8)]
    found = plan([waiting(count=4)], scene(borrowed, nodes=3))
    (move,) = found.moves
    assert {each.node for each in move.victims} == {move.node}
    assert len(move.victims) == 4
    assert move.cost.surplus == 0


def test_the_pod_saved_last_is_evicted_first():
    borrowed = [victim("old", saved=10), victim("fresh", saved=NOW - 5), *(victim(f"m{n}", saved=50) for n in range(6))]
    assert gone(plan([waiting()], scene(borrowed))) == ["fresh"]


def test_a_gang_is_evicted_whole_and_only_if_single_pods_do_not_suffice():
    gang = [victim(f"g{n}", 2, on=f"n{n}", gang="train") for n in range(4)]
    singles = [victim(f"s{n}", 1, on=f"n{n}") for n in range(4)]
    assert gone(plan([waiting(count=1)], scene([*gang, *singles], nodes=4, size=3))) == ["s0"]
    assert sorted(gone(plan([waiting(count=3)], scene([*gang, *singles], nodes=4, size=3)))) == [
        "g0", "g1", "g2", "g3", "s0"
    ]  # fmt: skip


def test_a_gang_on_every_node_is_looked_at_once_for_all_of_them(monkeypatch):
    """Otherwise a Job of thousands of borrowing pods would make each plan cost its size times the nodes."""
    looked, cost_of = [], CostScale.cost_of

    def counted(scale, victims, **more):
        looked.append(len(victims))
        return cost_of(scale, victims, **more)

    monkeypatch.setattr(CostScale, "cost_of", counted)
    there = scene([victim(f"g{n}-{k}", on=f"n{n}", gang="one") for n in range(50) for k in range(8)], nodes=50)
    assert len(gone(plan([waiting(count=8)], there))) == 400
    assert looked.count(400) == 1


def test_the_team_furthest_over_its_share_loses_pods_first():
    borrowed = [victim("a", team="team-a"), victim("c", team="team-c"), *(victim(f"a{n}") for n in range(6))]
    over = {TeamName("team-a"): gpus(1), TeamName("team-c"): gpus(9)}
    assert gone(plan([waiting()], scene(borrowed, over_share=over))) == ["c"]


def test_policy_may_put_age_before_work():
    borrowed = [victim("young", started=900, saved=900), victim("saved", started=10, saved=950), victim("x", 6)]
    first = (ReclaimCost.AGE, *(part for part in ReclaimCost if part is not ReclaimCost.AGE))
    assert gone(plan([waiting()], scene(borrowed))) == ["saved"]
    assert gone(plan([waiting()], scene(borrowed, order=first))) == ["young"]


def test_minimum_runtime_protects():
    borrowed = [victim(f"a{n}", until=NOW + 1) for n in range(8)]
    assert causes(plan([waiting()], scene(borrowed))) == {"b": NoPlan.NOT_ENOUGH_VICTIMS}


def test_a_budget_limits_evictions():
    guard = GuardId("pdb")
    borrowed = [victim(f"a{n}", guards=(guard,)) for n in range(8)]
    wants = [waiting(f"b{n}", since=n) for n in range(3)]
    found = plan(wants, scene(borrowed, left={guard: 2}))
    assert len(gone(found)) == 2
    assert causes(found) == {"b2": NoPlan.NOT_ENOUGH_VICTIMS}


def test_budgets_are_respected_while_other_victims_exist():
    there = [victim("guarded", saved=NOW, guards=(GuardId("pdb"),)), victim("free", saved=5), victim("x", 6)]
    found = plan([waiting(reported_at=1)], scene(there, left={GuardId("pdb"): 0}, budget_seconds=0))
    assert gone(found) == ["free"]


@pytest.mark.parametrize(("budget_seconds", "want"), [(NOW, False), (NOW - 1, True), (UNLIMITED, False)])
def test_after_a_long_wait_no_budget_that_an_owner_creates_during_the_notice_keeps_a_victim(budget_seconds, want):
    found = plan([waiting(reported_at=1)], scene([victim("a")], size=1, budget_seconds=budget_seconds))
    assert found.moves[0].is_past_budgets is want


@given(scenes(saved=(3, 5, NEVER)), st.integers(1, 6))
def test_a_plan_costs_as_little_as_any(scene_, count):
    asked = waiting(count=count)
    found = plan([asked], scene_)
    want = cheapest(scene_, asked.demand)
    if found.moves:
        assert found.moves[0].cost.ranked(scene_.order) == want
    else:
        fits = any(scene_.fleet.fits(each.name, asked.demand) for each in scene_.fleet.nodes())
        assert [each.cause for each in found.refused] == [NoPlan.FITS if fits else NoPlan.NOT_ENOUGH_VICTIMS]
        assert fits or want is None


@given(scenes(), st.integers(1, 6))
def test_no_victim_can_be_left_out(scene_, count):
    for move in plan([waiting(count=count)], scene_).moves:
        groups = [tuple(g) for g in {each.gang or each.uid: None for each in move.victims}]
        chosen = [unit for unit in units(scene_) if set(unit) <= set(move.victims)]
        assert sum(len(unit) for unit in chosen) == len(move.victims), groups
        for left_out in chosen:
            rest = [unit for unit in chosen if unit != left_out]
            assert cost(scene_, rest, missing(scene_, [move.waiting.demand], [move.node])) is None


def test_a_gang_is_broken_where_one_of_its_pods_goes_for_nothing():
    """Then it goes after single pods that lose more; where the room of each is needed, it costs what its pods cost."""
    pair = [victim(f"g{n}", gang="pair", saved=NOW - 5) for n in range(2)]
    singles = [victim(f"s{n}", saved=10) for n in range(6)]
    assert gone(plan([waiting(count=2)], scene([*pair, *singles]))) == ["g0", "g1"]
    assert gone(plan([waiting(count=1)], scene([*pair, *singles]))) == ["s0"]
    apart = [pair[0], pair[1]._replace(node="n1")]
    elsewhere = scene([*apart, *singles], others=[victim("x", 6, on="n1")], nodes=2, size=7)
    assert sorted(gone(plan([waiting(count=2)], elsewhere))) == ["s0", "s1"]


@given(scenes(), st.integers(1, 6))
def test_pods_that_go_together_cost_no_more_where_the_room_of_each_is_needed(scene_, count):
    """A user who makes an object for each two pods gains nothing by it then."""
    for move in plan([waiting(count=count)], scene_).moves:
        lacking = missing(scene_, [move.waiting.demand], [move.node])
        groups = {each.gang: [] for each in move.victims if each.gang is not None}
        for each in move.victims:
            if each.gang is not None:
                groups[each.gang].append(each)
        assert move.cost.gangs == sum(loses_more(unit, lacking) for unit in groups.values())
