"""What one node keeps, for whom, and when that is over."""

from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, asker, borrower, evict, take, tenant
from tests.core.support.reservations import NODE, full, kept
from webhook.core.model.names import Uid
from webhook.core.reclaim.held_room import inherited, is_short, trimmed
from webhook.core.reclaim.victim import GangId


def short(reclaim_index, world, holding):
    return is_short(holding, reclaim_index, world.fleet, leaving=reclaim_index.leaving(now=NOW).get(holding.node, ()))


def test_a_target_that_goes_is_done_and_its_room_still_counts():
    reclaim_index, world, holding = kept(*full(), asker("b", 2))
    evict(reclaim_index, Uid("a9"))
    left = trimmed(holding, reclaim_index)
    assert [target.uid for target in left.targets] == ["a8"]
    assert not short(reclaim_index, world, left)


def test_a_claim_that_was_seated_takes_its_targets_with_it():
    reclaim_index, world, holding = kept(*full(), asker("b", 2))
    take(tenant("b", 2, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert trimmed(holding, reclaim_index) is None


def gone(uid, reclaim_index, world):
    reclaim_index.remove(Uid(uid))
    world.remove_pod(Uid(uid))


def heirs(reclaim_index, world, before):
    left = trimmed(before, reclaim_index)
    assert short(reclaim_index, world, left)
    found = inherited(before, left, reclaim_index, world.fleet, leaving=reclaim_index.leaving(now=NOW).get(NODE, ()))
    return [(target.uid, target.beneficiary) for target in found.targets]


def test_who_is_seated_on_the_room_of_anothers_victims_leaves_him_its_own():
    reclaim_index, world, holding = kept(*full(), asker("b1"), asker("b2"))
    gone("a9", reclaim_index, world)
    take(tenant("b2", on="n0", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert heirs(reclaim_index, world, holding) == [("a8", "b1")]


def test_no_more_victims_are_left_to_others_than_they_need():
    reclaim_index, world, holding = kept(*full(), asker("b1"), asker("b2", 3))
    assert {target.uid for target in holding.targets} == {"a9", "a8", "a7", "a6"}
    gone("a9", reclaim_index, world)
    take(tenant("b2", 3, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    take(borrower("thief", on="n0"), reclaim_index, world)
    assert heirs(reclaim_index, world, holding) == [("a8", "b1")]


def test_gangs_are_left_to_others_whole():
    gang = GangId("g")
    members = [borrower(f"a{n}", on="n0", started_at=n, gang=gang) for n in range(2)]
    kept_back = [tenant(f"g{n}", on="n0", team="team-b", tier="guaranteed") for n in range(7)]
    reclaim_index, world, holding = kept(*members, borrower("single", on="n0"), *kept_back, asker("b1"), asker("b2", 2))
    gone("single", reclaim_index, world)
    take(tenant("b2", 2, on="n1", team="team-b", tier="guaranteed"), reclaim_index, world)
    take(tenant("g7", on="n0", team="team-b", tier="guaranteed"), reclaim_index, world)
    assert heirs(reclaim_index, world, holding) == [("a0", "b1"), ("a1", "b1")]


def test_a_target_that_was_promoted_stays_and_the_room_is_short():
    reclaim_index, world, holding = kept(*full(), asker("b", 2))
    take(tenant("a9", on="n0", team="team-a", tier="guaranteed"), reclaim_index, world)
    left = trimmed(holding, reclaim_index)
    assert [target.uid for target in left.targets] == ["a8"]
    assert short(reclaim_index, world, left)


def test_room_that_somebody_took_is_short():
    reclaim_index, world, holding = kept(*full(), asker("b", 2))
    assert not short(reclaim_index, world, holding)
    take(tenant("thief", on="n0", team="team-a", tier=None), reclaim_index, world)
    assert short(reclaim_index, world, holding)


def test_a_node_that_was_cordoned_or_went_keeps_nothing():
    reclaim_index, world, holding = kept(*full(), asker("b", 2))
    world.set_node(make.node("n0", is_cordoned=True))
    assert short(reclaim_index, world, holding)
    world.remove_node(NODE)
    assert short(reclaim_index, world, holding)


def test_the_rest_of_a_broken_gang_goes_whatever_becomes_of_its_claim():
    reclaim_index, world, holding = kept(*full(gang=GangId("team-a/g")), asker("b"))
    assert len(holding.targets) == 10
    for uid in ("a3", "a4"):
        reclaim_index.remove(Uid(uid))
    left = trimmed(holding, reclaim_index)
    reclaim_index.remove(Uid("b"))
    alone = trimmed(left, reclaim_index)
    assert (len(left.targets), len(alone.targets), alone.beneficiaries) == (8, 8, ())
    assert alone.given_up() == alone
    assert not short(reclaim_index, world, alone)


def test_a_gang_that_nobody_of_went_stays_when_nobody_waits():
    reclaim_index, _, holding = kept(*full(gang=GangId("team-a/g")), asker("b"))
    reclaim_index.remove(Uid("b"))
    assert trimmed(holding, reclaim_index) is None
