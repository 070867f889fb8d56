"""What one node holds, for which pods, and when the hold ends."""

from dataclasses import replace

import pytest

from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, asker, borrower, evict, reclaim_pod, take
from tests.core.support.reservations import EMPTY, NODE, POOR, full, kept
from webhook.core.model.amounts import GangId, NodeName, TeamName, Uid
from webhook.core.model.constraints import Constraints, Effect, Taint
from webhook.core.model.node import KeptPlace
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, Purpose
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.snapshot import inherited, is_short, pods_within_share, take_snapshot, trimmed
from webhook.core.world.world import World

TAINT = Taint("example.com/maintenance", Effect.NO_SCHEDULE)


def short(reclaim_index, world, node_hold):
    return is_short(
        node_hold, reclaim_index, world.fleet, leaving=reclaim_index.leaving(now=NOW).get(node_hold.node, ())
    )


def test_a_terminating_target_is_done_and_its_room_still_counts():
    reclaim_index, world, node_hold = kept(*full(), asker("b", 2))
    evict(reclaim_index, Uid("a9"))
    left = trimmed(node_hold, reclaim_index, Fleet())
    assert [target.uid for target in left.targets] == ["a8"]
    assert not short(reclaim_index, world, left)


def test_a_bound_beneficiary_removes_its_targets():
    reclaim_index, world, node_hold = kept(*full(), asker("b", 2))
    take(reclaim_pod("b", 2, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert trimmed(node_hold, reclaim_index, Fleet()) is None


def gone(uid, reclaim_index, world):
    reclaim_index.remove(Uid(uid))
    world.remove_pod(Uid(uid))


def beneficiaries(reclaim_index, world, before):
    left = trimmed(before, reclaim_index, Fleet())
    assert short(reclaim_index, world, left)
    found = inherited(before, left, reclaim_index, world.fleet, leaving=reclaim_index.leaving(now=NOW).get(NODE, ()))
    return [(target.uid, target.beneficiary) for target in found.targets]


def test_a_beneficiary_bound_to_the_room_of_anothers_victims_leaves_it_its_own():
    reclaim_index, world, node_hold = kept(*full(), asker("b1"), asker("b2"))
    gone("a9", reclaim_index, world)
    take(reclaim_pod("b2", on="n0", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert beneficiaries(reclaim_index, world, node_hold) == [("a8", "b1")]


def test_beneficiaries_inherit_no_more_victims_than_they_need():
    reclaim_index, world, node_hold = kept(*full(), asker("b1"), asker("b2", 3))
    assert {target.uid for target in node_hold.targets} == {"a9", "a8", "a7", "a6"}
    gone("a9", reclaim_index, world)
    take(reclaim_pod("b2", 3, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    take(borrower("thief", on="n0"), reclaim_index, world)
    assert beneficiaries(reclaim_index, world, node_hold) == [("a8", "b1")]


def test_gangs_are_inherited_whole():
    gang = GangId("g")
    members = [borrower(f"a{n}", on="n0", started_at=n, gang=gang) for n in range(2)]
    kept_back = [reclaim_pod(f"g{n}", on="n0", team="team-b", tier="guaranteed") for n in range(7)]
    reclaim_index, world, node_hold = kept(
        *members, borrower("single", on="n0"), *kept_back, asker("b1"), asker("b2", 2)
    )
    gone("single", reclaim_index, world)
    take(reclaim_pod("b2", 2, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    take(reclaim_pod("g7", on="n0", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert beneficiaries(reclaim_index, world, node_hold) == [("a0", "b1"), ("a1", "b1")]


def test_a_target_that_was_promoted_stays_and_the_room_is_short():
    reclaim_index, world, node_hold = kept(*full(), asker("b", 2))
    take(reclaim_pod("a9", on="n0", team="team-a", tier="guaranteed"), reclaim_index, world)
    left = trimmed(node_hold, reclaim_index, Fleet())
    assert [target.uid for target in left.targets] == ["a8"]
    assert short(reclaim_index, world, left)


def test_room_that_another_pod_took_is_short():
    reclaim_index, world, node_hold = kept(*full(), asker("b", 2))
    assert not short(reclaim_index, world, node_hold)
    take(reclaim_pod("thief", on="n0", team="team-a", tier=None), reclaim_index, world)
    assert short(reclaim_index, world, node_hold)


def test_a_cordoned_or_removed_node_holds_nothing():
    reclaim_index, world, node_hold = kept(*full(), asker("b", 2))
    world.set_node(make.node("n0", is_cordoned=True))
    assert short(reclaim_index, world, node_hold)
    world.remove_node(NODE)
    assert short(reclaim_index, world, node_hold)


def test_the_rest_of_a_broken_gang_is_evicted_even_without_its_beneficiary():
    reclaim_index, world, node_hold = kept(*full(gang=GangId("team-a/g")), asker("b"))
    assert len(node_hold.targets) == 10
    for uid in ("a3", "a4"):
        reclaim_index.remove(Uid(uid))
    left = trimmed(node_hold, reclaim_index, Fleet())
    reclaim_index.remove(Uid("b"))
    alone = trimmed(left, reclaim_index, Fleet())
    assert (len(left.targets), len(alone.targets), alone.beneficiaries) == (8, 8, ())
    assert alone.given_up() == alone
    assert not short(reclaim_index, world, alone)


def test_an_untouched_gang_stays_when_no_pod_waits():
    reclaim_index, _, node_hold = kept(*full(gang=GangId("team-a/g")), asker("b"))
    reclaim_index.remove(Uid("b"))
    assert trimmed(node_hold, reclaim_index, Fleet()) is None


def moving(*, places=(), movable=False, tier="preemptible"):
    """A node kept for a pod that moves make room for, and a victim that is to move."""
    victim = replace(borrower("v", on="n0"), is_movable=movable)
    victim = replace(victim, pod=victim.pod._replace(tier_label=tier))
    waiting = replace(asker("b", 4), pod=asker("b", 4).pod._replace(tier_label="preemptible"))
    reclaim_index, _, _ = kept(victim, waiting)
    made_for = Beneficiary(Uid("b"), waiting.namespace, "b", Purpose.MOVES)
    target = EvictionTarget(Uid("v"), victim.namespace, "v", Uid("b"), 0, is_moved=True)
    other = NodeHold("h9", NodeName("n1"), 99, (), since=1, places=places)
    reclaim_index.evictions.keep(NodeName("n1"), other if places else None, is_going=lambda _: False)
    return NodeHold("h1", NodeName("n0"), 99, (made_for,), (target,), since=1), reclaim_index


def place_for(uid="v"):
    return KeptPlace("Job team-a/j", "team-a/v", TeamName("team-a"), make.demand(1).requests, Uid(uid))


@pytest.mark.parametrize(("places", "want"), [((), []), ((place_for("other"),), []), ((place_for(),), ["v"])])
def test_a_pod_is_evicted_to_be_moved_only_while_its_place_is_kept(places, want):
    node_hold, reclaim_index = moving(places=places)
    left = trimmed(node_hold, reclaim_index, Fleet())
    assert [each.uid for each in left.targets] == want
    assert [each.uid for each in left.beneficiaries] == ["b"], "it borrows, and may have room by moves"


@pytest.mark.parametrize(("movable", "want"), [(True, ["v"]), (False, [])])
def test_a_guaranteed_pod_is_moved_only_while_its_owner_says_so(movable, want):
    node_hold, reclaim_index = moving(places=(place_for(),), movable=movable, tier="guaranteed")
    assert [each.uid for each in trimmed(node_hold, reclaim_index, Fleet()).targets] == want


def test_places_count_as_room_that_is_needed():
    reclaim_index, world, _ = kept(asker("b", 1))
    four = tuple(place_for(f"v{number}") for number in range(10))
    enough = NodeHold("h1", NODE, 99, (), places=four)
    assert not short(reclaim_index, world, enough)
    assert short(reclaim_index, world, replace(enough, places=(*four, place_for("one more"))))


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, ["b"], id="as it was"),
        pytest.param({"taints": (TAINT,)}, [], id="a taint that the pod does not tolerate"),
        pytest.param({"labels": {"pool": "other"}}, [], id="a label that the pod does not select"),
        pytest.param({"gpus": 1}, [], id="fewer devices than the pod asks for"),
    ],
)
def test_a_node_that_changed_keeps_room_only_for_pods_that_it_takes(changes, want):
    selects = Constraints(node_selector=(("pool", "ours"),))
    world = World(POOR)
    world.set_node(make.node("n0", labels={"pool": "ours"}))
    reclaim_index = ReclaimIndex(POOR.reclaim)
    for each in (*full(), asker("b", 2, constraints=selects)):
        take(each, reclaim_index, world)
    (move,) = plan(pods_within_share(reclaim_index, world), take_snapshot(reclaim_index, world, now=NOW)).moves
    node_hold = EMPTY.joined(move, at=NOW, until=NOW + 90)
    world.set_node(make.node("n0", **{"labels": {"pool": "ours"}} | changes))
    left = trimmed(node_hold, reclaim_index, world.fleet)
    assert [each.uid for each in (() if left is None else left.beneficiaries)] == want
    assert bool(left and left.targets) is bool(want)
