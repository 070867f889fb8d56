"""Which pods are entitled to room, and the inputs of a plan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.addons.idle.made import rules
from tests.core.support import make
from tests.core.support.make import gpus
from tests.core.support.reclaim_pods import NOW, asker, borrower, evict, indexed, reclaim_pod, take
from tests.core.support.waiting import member
from webhook.core.model.amounts import NodeName
from webhook.core.model.policy import LabelSelector, ReclaimRules
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, NoPlan
from webhook.core.reclaim.reclaim_pods import Disruption, SchedulerReport
from webhook.core.reclaim.snapshot import (
    CHARGED_SECONDS,
    GROWING_SECONDS,
    largest_room,
    over_share,
    pods_within_share,
    preferred,
    rising,
    select_pods,
    take_snapshot,
)
from webhook.core.reclaim.victims import VictimCost


def planned(reclaim_index, world):
    waiting = pods_within_share(reclaim_index, world)
    return plan(waiting, take_snapshot(reclaim_index, world, now=NOW))


def hold(reclaim_index, move, *, at=NOW):
    """Have a node keep the room of a plan, as the evictor does."""
    node_hold = reclaim_index.evictions.holds.get(move.node) or NodeHold(f"h-{move.node}", move.node, 0, ())
    reclaim_index.evictions.keep(move.node, node_hold.joined(move, at=at, until=at), is_going=reclaim_index.is_going)


def test_a_team_reclaims_no_more_than_its_share():
    asks = [asker(f"b{n}", 8, created=n) for n in range(4)]
    reclaim_index, world = indexed(*asks)
    assert [each.pod.uid for each in pods_within_share(reclaim_index, world)] == ["b0", "b1"]


def test_running_pods_count_before_waiting_ones():
    reclaim_index, world = indexed(
        reclaim_pod("old", 15, on="n0", team="team-b", tier="guaranteed", created=9), asker("b", 8)
    )
    assert pods_within_share(reclaim_index, world) == []


def test_a_pod_too_large_for_the_rest_does_not_block_smaller_ones():
    reclaim_index, world = indexed(asker("b0", 16, created=0), asker("b1", 8, created=1), asker("b2", 4, created=2))
    assert [each.pod.uid for each in pods_within_share(reclaim_index, world)] == ["b0", "b2"]


def test_pods_of_a_team_without_a_policy_get_nothing():
    reclaim_index, world = indexed(asker("x", team="team-x"))
    assert pods_within_share(reclaim_index, world) == []


def test_a_team_is_over_by_what_it_holds_on_nodes():
    reclaim_index, world = indexed(
        *(borrower(f"a{n}", on=f"n{n % 4}") for n in range(25)), borrower("waits", 5, on=None)
    )
    assert over_share(world) == {"team-a": gpus(5)}
    assert reclaim_index.allowances() == {}


def test_a_borrower_that_is_about_to_be_promoted_is_no_victim():
    borrowers = [borrower(f"a{n:02}", on=f"n{n // 10}", created=n) for n in range(40)]
    reclaim_index, world = indexed(*borrowers, asker("b", 8))
    assert rising(world) == {f"a{n:02}" for n in range(20)}
    found = planned(reclaim_index, world)
    assert len(found.moves[0].victims) == 8
    assert all(victim.uid >= "a20" for victim in found.moves[0].victims)


def test_what_runs_ahead_of_others_is_a_victim_though_its_team_has_share_left():
    ahead = [borrower(f"a{n}", 2, on="n0", is_backfill=True) for n in range(2)]
    head = asker("head", 8, team="team-a")
    reclaim_index, world = indexed(*ahead, head, nodes=1)
    assert rising(world) == set()
    (move,) = planned(reclaim_index, world).moves
    assert [victim.uid for victim in move.victims] == ["a0"]


def test_an_eviction_quota_splits_evictions_into_waves():
    by_choice = [borrower(f"a{n}", 1, on="n0") for n in range(10)]
    rules = ReclaimRules(evictions_per_minute=3)
    policy = make.policy(make.team(guaranteed=0), make.team("team-b"), reclaim=rules)
    reclaim_index, world = indexed(*by_choice, *(asker(f"b{n}", created=n) for n in range(5)), policy=policy, nodes=1)
    first = planned(reclaim_index, world).moves
    assert len(first) == 3
    for move in first[:2]:
        hold(reclaim_index, move)
    assert len(planned(reclaim_index, world).moves) == 1


def test_the_largest_room_is_what_one_node_could_free():
    kept = reclaim_pod("g", 7, on="n0", team="team-b", tier="guaranteed")
    reclaim_index, world = indexed(kept, borrower("a0", 2, on="n0"), borrower("a1", 4, on="n1"), nodes=2)
    assert largest_room(reclaim_index, world) == gpus(10)
    take(reclaim_pod("h", 5, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert largest_room(reclaim_index, world) == gpus(5)
    world.set_node(make.node("n1", is_cordoned=True))
    assert largest_room(reclaim_index, world) == gpus(3)


def asked(reclaim_index, world, **more):
    found = select_pods(pods_within_share(reclaim_index, world), reclaim_index, now=NOW, **more)
    return [each.uid for each in found.waiting], {each.waiting.uid: each.cause for each in found.refused}


def test_plans_are_made_for_pods_that_kube_scheduler_reports_to_lack_room():
    broken = asker("volume", report=SchedulerReport(NOW))
    unseen, tainted = asker("unseen", report=None), asker("tainted", report=SchedulerReport(NOW, is_for_taints=True))
    excluded = asker("excluded", report=SchedulerReport(NOW, is_for_peers=True))
    reclaim_index, world = indexed(broken, unseen, tainted, excluded, asker("short"))
    assert asked(reclaim_index, world) == (
        ["excluded", "short"],
        {"volume": NoPlan.NOT_FOR_ROOM, "tainted": NoPlan.NOT_FOR_ROOM},
    )
    causes = {"volume": NoPlan.NOT_FOR_ROOM}
    other = asker("other", report=None)
    take(other, reclaim_index, world)
    hold(reclaim_index, Move(other, NodeName("n0"), (), VictimCost()))
    assert asked(reclaim_index, world) == (["excluded", "short", "tainted"], causes), "its node may be one that is held"
    assert asked(reclaim_index, world, paused={"excluded", "short", "tainted"}) == ([], causes)


def test_a_gang_is_planned_for_when_it_stopped_growing():
    members = [asker(f"b{n}", gang="g", created=NOW - 2 * GROWING_SECONDS) for n in range(2)]
    reclaim_index, world = indexed(*members, asker("b2", gang="g", created=NOW - GROWING_SECONDS + 1))
    assert asked(reclaim_index, world) == ([], {})
    assert select_pods(pods_within_share(reclaim_index, world), reclaim_index, now=NOW).is_growing
    take(asker("b2", gang="g", created=NOW - GROWING_SECONDS), reclaim_index, world)
    assert asked(reclaim_index, world) == (["b0", "b1", "b2"], {})


def test_a_gang_that_keeps_its_gates_is_planned_for_once_the_leader_has_charged_all_of_it():
    def charged(name, since):
        found = member(name)
        return asker(name, gang="g", created=NOW, in_line=found, report=SchedulerReport(since, is_for_room=True))

    reclaim_index, world = indexed(charged("b0", NOW - 60), charged("b1", NOW))
    assert asked(reclaim_index, world) == ([], {})
    take(charged("b1", NOW - CHARGED_SECONDS), reclaim_index, world)
    assert asked(reclaim_index, world) == (["b0", "b1"], {})


@pytest.mark.parametrize(
    "other",
    [
        asker("late", gang="g", report=SchedulerReport(NOW)),
        asker("late", 20, gang="g"),
        borrower("runs", gang="g", gang_size=3),
    ],
    ids=["one lacks something else than room", "one is beyond the share", "one is missing"],
)
def test_no_pod_is_evicted_for_a_part_of_a_gang(other):
    reclaim_index, world = indexed(asker("b0", gang="g"), asker("single", created=1), other)
    found, refused = asked(reclaim_index, world)
    assert (found, refused["b0"]) == (["single"], NoPlan.GANG_INCOMPLETE)


def test_a_gang_with_a_paused_pod_is_paused():
    reclaim_index, world = indexed(asker("b0", gang="g"), asker("b1", gang="g"))
    assert asked(reclaim_index, world, paused={"b1"}) == ([], {"b0": NoPlan.GANG_INCOMPLETE})


steps = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b"]), st.integers(1, 4)), max_size=60)


@given(steps)
def test_churn_without_demand_evicts_no_pod(taken):
    """Pods come, where they find room, and end; teams borrow beyond their shares; no guaranteed pod waits."""
    reclaim_index, world = indexed(nodes=2)
    there = {}
    for number, (uid, team, count) in enumerate(taken):
        name = f"p{uid}"
        if name in there:
            world.remove_pod(there[name].pod.uid)
            reclaim_index.remove(there.pop(name).pod.uid)
            continue
        demand = make.demand(count)
        room = [node.name for node in world.fleet.nodes() if world.fleet.fits(node.name, demand)]
        share = world.policy.teams[team == "b"].gpus.guaranteed
        tier = "guaranteed" if world.usage(f"team-{team}").guaranteed + gpus(count) <= share else "preemptible"
        if room:
            for on in (None, room[0]):  # first it waits, then it is bound
                there[name] = reclaim_pod(name, count, on=on, team=f"team-{team}", tier=tier, created=number)
                world.set_pod(there[name].pod)
                reclaim_index.set(there[name])
                assert planned(reclaim_index, world).moves == ()


waves = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=2, max_size=6)


@given(waves, st.randoms(use_true_random=False))
def test_pods_that_come_in_waves_cost_no_more_than_pods_that_come_together(waves, dice):
    """Whether victims of earlier plans are already evicted or not: no pod is chosen twice, or without a beneficiary."""
    borrowers = [borrower(f"a{n:02}", on=f"n{n // 10}", created=n) for n in range(40)]
    policy = make.policy(make.team(guaranteed=0), make.team("team-b", guaranteed=40))
    reclaim_index, world = indexed(*borrowers, policy=policy)
    chosen, placed = set(), 0
    for number, wave in enumerate(waves):
        for each, size in enumerate(wave):
            take(asker(f"b{number}-{each}", size, created=number), reclaim_index, world)
        for move in planned(reclaim_index, world).moves:
            assert chosen.isdisjoint(victim.uid for victim in move.victims)
            chosen |= {victim.uid for victim in move.victims}
            hold(reclaim_index, move)
            placed += move.waiting.demand.gpus
        assert gpus(len(chosen)) == placed
        for uid in sorted(chosen):
            if dice.random() < 0.3:
                evict(reclaim_index, uid)


def test_chosen_victims_are_subtracted_from_disruption_budgets():
    budget = Disruption("team-a", "pdb", LabelSelector(()), 3)
    policy = make.policy(make.team(guaranteed=0), make.team("team-b", guaranteed=40))
    reclaim_index, world = indexed(*(borrower(f"a{n}", on="n0") for n in range(10)), policy=policy, nodes=1)
    reclaim_index.set_disruption(budget)
    evict(reclaim_index, "a0")
    assert reclaim_index.allowances({"a0", "a1", "gone"}) == {budget.guard: 1}
    for name in ("b", "b'"):
        take(asker(name, 2), reclaim_index, world)
    node_hold = NodeHold(
        "h", "n0", 0, (Beneficiary("b'", "team-b", "b'"),), (EvictionTarget("a1", "team-a", "a1", "b'", NOW),)
    )
    reclaim_index.evictions.keep("n0", node_hold, is_going=reclaim_index.is_going)
    assert planned(reclaim_index, world).moves == (), "two are leaving for b', and one more may go"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 20))
def test_a_lender_keeps_its_share(sizes, share):
    """Whatever another team requests, no guaranteed pod is evicted, and no team falls below its share."""
    owner = make.team(guaranteed=share)
    policy = make.policy(owner, make.team("team-b", guaranteed=40))
    tiers = ["guaranteed"] * share + ["preemptible"] * (40 - share)
    pods = [reclaim_pod(f"a{n:02}", on=f"n{n // 10}", team="team-a", tier=t, created=n) for n, t in enumerate(tiers)]
    reclaim_index, world = indexed(
        *pods, *(asker(f"b{n}", size, created=n) for n, size in enumerate(sizes)), policy=policy
    )
    gone = [victim for move in planned(reclaim_index, world).moves for victim in move.victims]
    assert all(victim.uid >= f"a{share:02}" for victim in gone)
    assert 40 - len(gone) >= share


@pytest.mark.parametrize(
    ("actions", "want"),
    [(("prefer",), ["idle-0", "idle-1"]), (("report", "demote", "evict"), ["busy-0", "busy-1"])],
    ids=["preferred", "not preferred"],
)
def test_idle_borrowers_are_the_first_victims(actions, want):
    """Those that use their GPUs started later, and would lose less work."""
    idle = [borrower(f"idle-{n}", 5, on="n0", created=1) for n in range(2)]
    idle = [replace(each, pod=each.pod._replace(idle_since=2)) for each in idle]
    busy = [borrower(f"busy-{n}", 5, on="n1", created=50_000) for n in range(2)]
    policy = make.policy(make.team(guaranteed=0), make.team("team-b"), idle=rules(*actions))
    reclaim_index, world = indexed(*idle, *busy, asker("b", 10), policy=policy, nodes=2)
    (move,) = planned(reclaim_index, world).moves
    assert sorted(victim.uid for victim in move.victims) == want
    assert preferred(reclaim_index, world) == ({"idle-0", "idle-1"} if "prefer" in actions else set())


def test_on_one_node_the_idle_borrower_goes_though_it_would_lose_more_work():
    idle = borrower("idle", 5, on="n0", created=1)
    idle = replace(idle, pod=idle.pod._replace(idle_since=2))
    policy = make.policy(make.team(guaranteed=0), make.team("team-b"), idle=rules("prefer"))
    reclaim_index, world = indexed(
        idle, borrower("busy", 5, on="n0", created=50_000), asker("b", 5), policy=policy, nodes=1
    )
    (move,) = planned(reclaim_index, world).moves
    assert [victim.uid for victim in move.victims] == ["idle"]
    assert move.cost.used == 0


def test_without_rules_no_pod_is_preferred():
    pod = borrower("a", on="n0")
    reclaim_index, world = indexed(replace(pod, pod=pod.pod._replace(idle_since=2)))
    assert preferred(reclaim_index, world) == set()
