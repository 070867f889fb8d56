"""Plans of a round: which pods get room, which victims are evicted, and properties of every round."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, requirement, resident
from tests.core.support.scenes import APART, APP, NOW, alone, causes, counts, gone, like, scene, scenes, victim, waiting
from webhook.core.model.amounts import UNLIMITED, NodeName, TeamName
from webhook.core.model.constraints import Constraints, NodeTerm
from webhook.core.placement.pod_counts import PodCounts
from webhook.core.reclaim import reclaim
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Hold, NoPlan
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import GuardId, VictimIndex

# -- the terms


def test_pods_with_room_are_assumed_on_their_chosen_nodes_and_no_pod_is_evicted():
    """The older one could be on n0 too; there it would take the room of the other, which can use no other node."""
    there = Constraints(terms=(NodeTerm((), (requirement("metadata.name", "In", "n0"),)),))
    older = waiting("b0", chosen=("n1", "n0"), since=1)
    younger = waiting("b1", chosen=("n0",), constraints=there, since=2)
    full = [victim(f"a{n}", on=f"n{n % 2}") for n in range(14)]
    found = plan([older, younger], scene(full, nodes=2))
    assert [each.cause for each in found.refused] == [NoPlan.FITS, NoPlan.FITS]


def test_surplus_of_one_eviction_serves_the_next_pod():
    found = plan([waiting("b1"), waiting("b2")], scene([victim("a", 2), victim("x", 6)]))
    assert gone(found) == ["a"]
    assert [move.victims for move in found.moves][1] == ()


def test_no_pod_is_evicted_for_a_pod_that_fits_or_never_would():
    borrowed = [victim(f"a{n}") for n in range(7)]
    elsewhere = Constraints(node_selector=(("zone", "moon"),))
    found = plan([waiting("fits"), waiting("huge", 9), waiting("picky", constraints=elsewhere)], scene(borrowed))
    assert found.moves == ()
    assert causes(found) == {"fits": NoPlan.FITS, "huge": NoPlan.NO_NODE, "picky": NoPlan.NO_NODE}


class TestUnderWay:
    """Plans for a team stop where so many of its pods have room and do not use it yet."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch):
        monkeypatch.setattr(reclaim, "UNDER_WAY", 3)

    def planned(self, pods, **under_way):
        counts = {TeamName(team.replace("_", "-")): count for team, count in under_way.items()}
        found = plan(pods, scene([victim(f"a{n}") for n in range(8)]), under_way=counts)
        assert len(gone(found)) == len(found.moves)
        assert found.refused == (), "the others are not refused: their turn comes"
        return [move.waiting.name for move in found.moves]

    def test_the_longest_waiting_have_their_turn_first(self):
        pods = [waiting(f"b{n}", since=n) for n in range(5)]
        assert self.planned(pods) == ["b0", "b1", "b2"]
        assert self.planned(pods, team_b=2) == ["b0"]
        assert self.planned(pods, team_b=3) == []

    def test_pods_of_one_team_that_use_no_room_do_not_keep_others_waiting(self):
        c = waiting("c", since=1)
        c = replace(c, pod=c.pod._replace(namespace="team-c", team_label="team-c"))
        assert self.planned([waiting("b"), c], team_b=9) == ["c"]

    def test_a_gang_is_never_cut(self):
        pods = [waiting("first"), *[waiting(f"g{n}", gang="g", since=1) for n in range(4)], waiting("last", since=2)]
        assert self.planned(pods) == ["first", "g0", "g1", "g2", "g3"]

    def test_without_counts_there_is_a_plan_for_all(self):
        found = plan([waiting(f"b{n}") for n in range(5)], scene([victim(f"a{n}") for n in range(8)]))
        assert len(found.moves) == 5


@pytest.mark.parametrize("nodes", [2**power for power in range(1, 11)], ids=lambda nodes: f"{nodes} nodes")
def test_a_pod_of_a_whole_node_costs_the_pods_of_one_node_however_many_there_are(nodes):
    """The fixture by which KAI-Scheduler measures its over-eviction: 8 (N - 1) from N = 4 on."""
    borrowed = [victim(f"a{n}-{k}", on=f"n{n}") for n in range(nodes) for k in range(8)]
    (move,) = plan([waiting(count=8)], scene(borrowed, nodes=nodes)).moves
    assert len(move.victims) == 8
    assert {each.node for each in move.victims} == {move.node}


@pytest.mark.parametrize("gang", ["b", None], ids=["a gang", "single pods"])
def test_sixteen_pods_of_whole_nodes_cost_the_pods_of_sixteen_nodes(gang):
    borrowed = [victim(f"a{n}-{k}", on=f"n{n}") for n in range(64) for k in range(8)]
    found = plan([waiting(f"b{n}", 8, gang=gang) for n in range(16)], scene(borrowed, nodes=64))
    assert len(gone(found)) == 128
    assert len({move.node for move in found.moves}) == 16


def test_two_waiting_pods_do_not_count_on_the_same_free_gpu():
    borrowed = [victim(f"a{n}", started=n) for n in range(7)]
    found = plan([waiting("first"), waiting("second", since=1)], scene(borrowed))
    assert causes(found) == {"first": NoPlan.FITS}
    assert gone(found) == ["a6"]


def test_room_that_is_being_freed_needs_no_victim():
    borrowed = [victim(f"a{n}") for n in range(8)]
    leaving = ReclaimPod(resident(uid="a3", node="n0", demand=borrowed[3].demand))
    found = plan([waiting()], scene(borrowed, leaving=[leaving]))
    assert [(move.node, move.victims) for move in found.moves] == [("n0", ())]


def test_reserved_room_is_not_given_to_another_pod():
    borrowed = [victim(f"a{n}", started=n) for n in range(7)]
    hold = Hold(waiting("b0"), NodeName("n0"))
    found = plan([waiting("b0"), waiting("b1")], scene(borrowed, holds=[hold]))
    assert [move.waiting.name for move in found.moves] == ["b1"]
    assert gone(found) == ["a6"]


def test_a_gang_that_cannot_be_placed_whole_evicts_no_pod():
    borrowed = [victim(f"a{n}") for n in range(8)]
    gang = [waiting(f"b{n}", 3, gang="train") for n in range(3)]
    found = plan([*gang, waiting("single", since=9)], scene(borrowed))
    assert len(gone(found)) == 1
    assert causes(found) == {
        "b0": NoPlan.GANG_INCOMPLETE, "b1": NoPlan.GANG_INCOMPLETE, "b2": NoPlan.NOT_ENOUGH_VICTIMS
    }  # fmt: skip


# -- attempts to keep borrowed GPUs


def test_a_gang_is_as_old_as_its_oldest_member():
    """New pods with the label would otherwise protect the others for ever."""
    gang = [victim(f"g{n}", 2, gang="train", until=NOW + 60 * n) for n in range(4)]
    assert sorted(gone(plan([waiting()], scene(gang)))) == ["g0", "g1", "g2", "g3"]
    young = [victim(f"g{n}", 2, gang="train", until=NOW + 60) for n in range(4)]
    assert causes(plan([waiting()], scene(young))) == {"b": NoPlan.NOT_ENOUGH_VICTIMS}


def test_a_protected_member_protects_no_other_member():
    gang = [victim(f"g{n}", 4, gang="train") for n in range(2)]
    assert gone(plan([waiting()], scene(gang, spared={"g0"}))) == ["g1"]


def test_no_minimum_runtime_begins_after_a_pod_waits():
    """Otherwise an owner who deletes and recreates pods in time would borrow for ever."""
    again = [victim(f"a{n}", 4, started=NOW - 10, until=NOW + 50) for n in range(2)]

    def found(at):
        return plan([waiting(reported_at=at)], scene(again, minimum_runtime=60))

    assert causes(found(NOW - 10)) == {"b": NoPlan.NOT_ENOUGH_VICTIMS}
    assert len(gone(found(NOW - 11))) == 1


def test_budgets_count_for_as_long_as_policy_says():
    guard = GuardId("pdb")
    guarded = [victim(f"a{n}", guards=(guard,)) for n in range(8)]
    asks = waiting(reported_at=NOW - 300)

    def found(seconds, **more):
        return plan([asks], scene(guarded, left={guard: 0}, budget_seconds=seconds, **more))

    assert causes(found(UNLIMITED)) == causes(found(301)) == {"b": NoPlan.NOT_ENOUGH_VICTIMS}
    assert [(len(move.victims), move.is_past_budgets) for move in found(300).moves] == [(1, True)]
    assert found(300, spared={f"a{n}" for n in range(8)}).moves == ()


def test_refused_victims_are_evicted_once_budgets_are_overridden():
    there = [victim("a", 8)]
    late, soon = waiting(reported_at=NOW - 300), waiting(reported_at=NOW - 299)
    refused = scene(there, refused={"a"}, budget_seconds=300)
    assert plan([soon], refused).moves == ()
    assert gone(plan([late], refused)) == ["a"]


def test_a_plan_that_exceeds_the_quota_of_a_team_per_minute_is_still_made():
    """Otherwise GPUs borrowed in small pieces could never be reclaimed for one large pod."""
    small = [victim(f"a{n}") for n in range(8)]
    wants = [waiting("b0", 4), waiting("b1", since=1)]
    found = plan(wants, scene(small, quotas={TeamName("team-a"): 1}))
    assert len(gone(found)) == 4
    assert causes(found) == {"b1": NoPlan.NOT_ENOUGH_VICTIMS}
    assert plan(wants, scene(small, quotas={TeamName("team-a"): 0})).moves == ()


# -- pods with anti-affinity to other pods


def test_no_pod_is_evicted_on_a_node_that_the_waiting_pods_anti_affinity_excludes():
    borrowed = [victim("cheap", saved=NOW), victim("x", 7), victim("dear", on="n1", saved=0), victim("y", 7, on="n1")]
    assert gone(plan([waiting()], scene(borrowed, nodes=2))) == ["cheap"]
    assert gone(plan([alone()], scene(borrowed, nodes=2, pod_counts=like("n0")))) == ["dear"]
    found = plan([alone()], scene(borrowed, nodes=2, pod_counts=like("n0", "n1")))
    assert (found.moves, causes(found)) == ((), {"b": NoPlan.TOPOLOGY_UNMET})


def test_free_room_on_an_excluded_node_does_not_count():
    assert gone(plan([alone()], scene([victim("a", 8, on="n1")], nodes=2, pod_counts=like("n0")))) == ["a"]


def test_pods_with_mutual_anti_affinity_get_room_on_separate_nodes():
    borrowed = [victim(f"a{n}{on}", 4, on=on) for n in range(2) for on in ("n0", "n1")]
    members = [alone(f"b{number}", gang="serving") for number in range(3)]
    found = plan(members[:2], scene(borrowed, nodes=2))
    assert {move.node for move in found.moves} == {"n0", "n1"}
    assert plan(members, scene(borrowed, nodes=2)).moves == (), "a third has no node of its own"


def test_anti_affinity_of_existing_pods_counts_too():
    borrowed = [victim("a", 8, saved=NOW), victim("b", 8, on="n1", saved=0)]
    existing = resident(uid="k", namespace="team-b", node="n0", anti_affinity_rules=(APART,))
    found = PodCounts()
    found.change(existing, "n0", 1)
    assert gone(plan([waiting(labels=APP)], scene(borrowed, nodes=2, pod_counts=found))) == ["b"]
    assert gone(plan([waiting()], scene(borrowed, nodes=2, pod_counts=found))) == ["a"]
    first = waiting("b0", 8, topology=(APART,))
    assert plan([first, waiting("b1", labels=APP)], scene(borrowed, nodes=2)).moves[1].node == "n1"


def test_a_beneficiary_counts_as_already_placed():
    borrowed = [victim("a", 8), victim("b", 8, on="n1")]
    kept = Hold(waiting("b0", labels=APP), NodeName("n0"))
    (move,) = plan([alone("b1")], scene(borrowed, nodes=2, holds=[kept])).moves
    assert move.node == "n1"


@given(scenes(), st.integers(1, 6), st.sets(st.sampled_from(["n0", "n1", "n2"])))
def test_anti_affinity_by_hostname_excludes_the_nodes_of_the_pods(scene_, count, taken):
    others = Constraints(terms=(NodeTerm((requirement("host", "NotIn", *sorted(taken)),), ()),))
    result = plan([alone(count=count)], replace(scene_, pod_counts=like(*taken)))
    want = plan([waiting(count=count, constraints=others)], scene_)
    assert [(move.node, move.victims) for move in result.moves] == [(move.node, move.victims) for move in want.moves]
    assert bool(result.moves) or (NoPlan.FITS in causes(result).values()) == (NoPlan.FITS in causes(want).values())


@given(scenes(), st.lists(counts, min_size=1, max_size=5), st.sets(st.sampled_from(["n0", "n1", "n2"])))
def test_no_round_places_pods_with_mutual_anti_affinity_together(scene_, sizes, taken):
    found = plan([alone(f"b{n}", size) for n, size in enumerate(sizes)], replace(scene_, pod_counts=like(*taken)))
    nodes = [move.node for move in found.moves]
    assert len(set(nodes)) == len(nodes)
    assert not taken & set(nodes)


@given(scenes(), st.lists(counts, min_size=1, max_size=6), st.randoms())
def test_the_same_snapshot_gives_the_same_plan(scene_, sizes, dice):
    wants = [waiting(f"b{n}", size, since=n % 2) for n, size in enumerate(sizes)]
    mixed, victims = list(wants), list(scene_.victim_index)
    dice.shuffle(mixed)
    dice.shuffle(victims)
    assert plan(wants, scene_) == plan(mixed, replace(scene_, victim_index=VictimIndex(victims)))


@given(scenes(), st.lists(counts, min_size=1, max_size=8), st.booleans())
def test_after_a_round_every_beneficiary_has_room_and_no_pod_is_evicted_twice(scene_, sizes, is_gang):
    wants = [waiting(f"b{n}", size, gang="new" if is_gang else None) for n, size in enumerate(sizes)]
    found = plan(wants, scene_)
    free = {each.name: scene_.fleet.free(each.name, GPU) for each in scene_.fleet.nodes()}
    away = [each for move in found.moves for each in move.victims]
    assert len({each.uid for each in away}) == len(away)
    for each in away:
        free[each.node] += dict(each.demand.requests)[GPU]
    for move in found.moves:
        free[move.node] -= dict(move.waiting.demand.requests)[GPU]
    assert all(amount >= 0 for amount in free.values())
    result = [each.waiting.uid for each in (*found.moves, *found.refused)]
    assert sorted(result) == sorted(each.uid for each in wants)
    if is_gang and any(each.cause is not NoPlan.FITS for each in found.refused):
        assert found.moves == ()
