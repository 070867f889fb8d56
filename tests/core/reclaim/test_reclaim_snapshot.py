"""Who is entitled to room, and what a plan is made from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.make import gpus
from tests.core.support.reclaim_pods import NOW, asker, borrower, take, tenant, town
from webhook.core.model.policy import LabelSelector, ReclaimRules
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Cause, Hold
from webhook.core.reclaim.reclaim_pod import Disruption, Report
from webhook.core.reclaim.reclaim_snapshot import (
    GROWING_SECONDS,
    asking,
    entitled,
    largest_seat,
    over_share,
    rising,
    scene,
)


def planned(roll, world, **more):
    waiting = [each.waiting() for each in entitled(roll, world)]
    return plan(waiting, scene(roll, world, now=NOW, **more))


def test_a_team_gets_no_more_than_its_share_back():
    asks = [asker(f"b{n}", 8, created=n) for n in range(4)]
    roll, world = town(*asks)
    assert [each.pod.uid for each in entitled(roll, world)] == ["b0", "b1"]


def test_what_runs_counts_before_what_waits():
    roll, world = town(tenant("old", 15, on="n0", team="team-b", tier="guaranteed", created=9), asker("b", 8))
    assert entitled(roll, world) == []


def test_a_pod_that_is_too_large_for_the_rest_lets_smaller_ones_pass():
    roll, world = town(asker("b0", 16, created=0), asker("b1", 8, created=1), asker("b2", 4, created=2))
    assert [each.pod.uid for each in entitled(roll, world)] == ["b0", "b2"]


def test_pods_of_a_team_without_a_policy_get_nothing():
    roll, world = town(asker("x", team="team-x"))
    assert entitled(roll, world) == []


def test_a_team_is_over_by_what_it_holds_on_nodes():
    roll, world = town(*(borrower(f"a{n}", on=f"n{n % 4}") for n in range(25)), borrower("waits", 5, on=None))
    assert over_share(world) == {"team-a": gpus(5)}
    assert roll.allowances() == {}


def test_a_borrower_that_is_about_to_be_promoted_is_spared():
    lent = [borrower(f"a{n:02}", on=f"n{n // 10}", created=n) for n in range(40)]
    roll, world = town(*lent, asker("b", 8))
    assert rising(world) == {f"a{n:02}" for n in range(20)}
    found = planned(roll, world)
    assert len(found.moves[0].victims) == 8
    assert all(victim.uid >= "a20" for victim in found.moves[0].victims)


def test_an_eviction_budget_makes_waves():
    by_choice = [borrower(f"a{n}", 1, on="n0") for n in range(10)]
    rules = ReclaimRules(evictions_per_minute=3)
    policy = make.policy(make.team(guaranteed=0), make.team("team-b"), reclaim=rules)
    roll, world = town(*by_choice, *(asker(f"b{n}", created=n) for n in range(5)), policy=policy, nodes=1)
    assert len(planned(roll, world).moves) == 3
    assert len(planned(roll, world, evicted={"team-a": 2}).moves) == 1


def test_the_largest_seat_is_what_one_node_could_give():
    kept = tenant("g", 7, on="n0", team="team-b", tier="guaranteed")
    roll, world = town(kept, borrower("a0", 2, on="n0"), borrower("a1", 4, on="n1"), nodes=2)
    assert largest_seat(roll, world) == gpus(10)
    take(tenant("h", 5, on="n1", team="team-b", tier="guaranteed"), roll, world)
    assert largest_seat(roll, world) == gpus(5)
    world.set_node(make.node("n1", is_cordoned=True))
    assert largest_seat(roll, world) == gpus(3)


def asked(roll, world, **more):
    found = asking(entitled(roll, world), roll, now=NOW, **more)
    return [each.uid for each in found.waiting], {each.waiting.uid: each.cause for each in found.refused}


def test_plans_are_made_for_pods_that_kube_scheduler_reports_to_lack_room():
    broken = asker("volume", report=Report(NOW))
    unseen, tainted = asker("unseen", report=None), asker("tainted", report=Report(NOW, is_for_taints=True))
    roll, world = town(broken, unseen, tainted, asker("short"))
    assert asked(roll, world) == (["short"], {"volume": Cause.NOT_FOR_ROOM, "tainted": Cause.NOT_FOR_ROOM})
    told = {"volume": Cause.NOT_FOR_ROOM}
    assert asked(roll, world, has_holds=True) == (["short", "tainted"], told), "its node may be one that is held"
    assert asked(roll, world, has_holds=True, resting={"short", "tainted"}) == ([], told)


def test_a_gang_is_planned_for_when_it_stopped_growing():
    members = [asker(f"b{n}", gang="g", created=NOW - 2 * GROWING_SECONDS) for n in range(2)]
    roll, world = town(*members, asker("b2", gang="g", created=NOW - GROWING_SECONDS + 1))
    assert asked(roll, world) == ([], {})
    assert asking(entitled(roll, world), roll, now=NOW).is_growing
    take(asker("b2", gang="g", created=NOW - GROWING_SECONDS), roll, world)
    assert asked(roll, world) == (["b0", "b1", "b2"], {})


@pytest.mark.parametrize(
    "other",
    [
        asker("late", gang="g", report=Report(NOW)),
        asker("late", 20, gang="g"),
        borrower("runs", gang="g", gang_size=3),
    ],
    ids=["one lacks something else than room", "one is beyond the share", "one is still to come"],
)
def test_nothing_goes_for_a_part_of_a_gang(other):
    roll, world = town(asker("b0", gang="g"), asker("single", created=1), other)
    found, refused = asked(roll, world)
    assert (found, refused["b0"]) == (["single"], Cause.GANG_INCOMPLETE)


def test_a_gang_of_which_one_pod_rests_rests():
    roll, world = town(asker("b0", gang="g"), asker("b1", gang="g"))
    assert asked(roll, world, resting={"b1"}) == ([], {"b0": Cause.GANG_INCOMPLETE})


steps = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b"]), st.integers(1, 4)), max_size=60)


@given(steps)
def test_churn_without_demand_evicts_nobody(taken):
    """Pods come, where they find room, and go; teams borrow beyond their shares; nobody who is guaranteed waits."""
    roll, world = town(nodes=2)
    there = {}
    for number, (uid, team, count) in enumerate(taken):
        name = f"p{uid}"
        if name in there:
            world.remove_pod(there[name].pod.uid)
            roll.remove(there.pop(name).pod.uid)
            continue
        demand = make.demand(count)
        room = [node.name for node in world.fleet.nodes() if world.fleet.fits(node.name, demand)]
        share = world.policy.teams[team == "b"].gpus.guaranteed
        tier = "guaranteed" if world.book(f"team-{team}").guaranteed + gpus(count) <= share else "preemptible"
        if room:
            for on in (None, room[0]):  # first it waits, then it is bound
                there[name] = tenant(name, count, on=on, team=f"team-{team}", tier=tier, created=number)
                world.set_pod(there[name].pod)
                roll.set(there[name])
                assert planned(roll, world).moves == ()


waves = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=2, max_size=6)


@given(waves, st.randoms(use_true_random=False))
def test_pods_that_come_in_waves_cost_no_more_than_pods_that_come_together(waves, dice):
    """Whether the victims of earlier plans were sent away yet or not: nobody goes twice, or for nobody."""
    lent = [borrower(f"a{n:02}", on=f"n{n // 10}", created=n) for n in range(40)]
    policy = make.policy(make.team(guaranteed=0), make.team("team-b", guaranteed=40))
    roll, world = town(*lent, policy=policy)
    holds, chosen, seated = [], set(), 0
    for number, wave in enumerate(waves):
        for each, size in enumerate(wave):
            take(asker(f"b{number}-{each}", size, created=number), roll, world)
        for move in planned(roll, world, holds=holds, chosen=chosen).moves:
            assert chosen.isdisjoint(victim.uid for victim in move.victims)
            chosen |= {victim.uid for victim in move.victims}
            holds.append(Hold(move.waiting.uid, move.node, move.waiting.demand))
            seated += move.waiting.demand.gpus
        assert gpus(len(chosen)) == seated
        for uid in sorted(chosen):
            if dice.random() < 0.3:
                roll.send_away(uid)


def test_victims_that_are_chosen_are_taken_out_of_disruption_budgets():
    budget = Disruption("team-a", "pdb", LabelSelector(()), 3)
    policy = make.policy(make.team(guaranteed=0), make.team("team-b", guaranteed=40))
    roll, world = town(*(borrower(f"a{n}", on="n0") for n in range(10)), policy=policy, nodes=1)
    roll.set_disruption(budget)
    roll.send_away("a0")
    assert roll.allowances({"a0", "a1", "gone"}) == {budget.guard: 1}
    take(asker("b", 2), roll, world)
    hold = Hold("b'", "n0", make.demand(2))
    assert planned(roll, world, holds=[hold], chosen={"a1"}).moves == (), "two are leaving for b', and one more may go"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 20))
def test_a_lender_keeps_its_share(sizes, share):
    """However much another team asks for, nobody guaranteed goes, and no team falls below its share."""
    lender = make.team(guaranteed=share)
    policy = make.policy(lender, make.team("team-b", guaranteed=40))
    tiers = ["guaranteed"] * share + ["preemptible"] * (40 - share)
    pods = [tenant(f"a{n:02}", on=f"n{n // 10}", team="team-a", tier=t, created=n) for n, t in enumerate(tiers)]
    roll, world = town(*pods, *(asker(f"b{n}", size, created=n) for n, size in enumerate(sizes)), policy=policy)
    gone = [victim for move in planned(roll, world).moves for victim in move.victims]
    assert all(victim.uid >= f"a{share:02}" for victim in gone)
    assert 40 - len(gone) >= share
