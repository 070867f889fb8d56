"""A round for pods in line on a whole world: who gets room under limits, and who goes."""

from functools import partial

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import node, requirement
from tests.core.support.racks import ONE_RACK
from tests.core.support.reclaim_pods import asker, borrower, reclaim_pod, take
from tests.core.support.waiting import member, waiting
from webhook.core.model.amounts import NodeName
from webhook.core.model.constraints import Constraints
from webhook.core.model.demand import ClaimRef
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule
from webhook.core.reclaim.holds import Beneficiary, NodeHold
from webhook.core.reclaim.limit_plan import LimitRound
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.snapshot import take_snapshot
from webhook.core.starting.line_reclaim import NOTHING, plan_line
from webhook.core.world.world import World

NOW = 100_000


OWN = waiting("own", namespace="team-b")


def place(*held, line=(OWN,), nodes=2, limit=4):
    """`left` has 4 GPUs for team-a and team-b, each guaranteed 2, on nodes of 4.

    Two of the pods that team-a borrows are inside its own share, and about to be promoted.
    """
    world = World(tree_policy(left=department("left", "top", guaranteed=4, limit_=limit), guaranteed=2))
    reclaim_index = ReclaimIndex(world.policy.reclaim)
    for number in range(nodes):
        world.set_node(node(f"n{number}", gpus=4))
    for each in held:
        take(each, reclaim_index, world)
    for each in line:
        world.set_waiting(each)
    return world, reclaim_index


def planned(world, reclaim_index, **more):
    snapshot = partial(take_snapshot, reclaim_index, world, now=NOW)
    return plan_line(world, reclaim_index, snapshot, **more)


def victims(found):
    return [(move.waiting.name, [each.name for each in move.victims]) for move in found.moves]


BORROWED = [borrower(f"a{number}", on="n0") for number in range(4)]
FAR = [borrower(f"d{number}", on="n1", team="team-d") for number in range(4)]


def test_a_borrower_under_the_limit_goes_and_another_departments_stays():
    found = planned(*place(*BORROWED, *FAR))
    assert victims(found) == [("own", ["a2"])]
    assert found.moves[0].levels == ("department left",)


def test_nothing_is_planned_without_a_pod_in_line():
    assert planned(*place(*BORROWED, line=())) is NOTHING
    assert planned(*place(*BORROWED), paused={waiting("own").uid}) is NOTHING
    assert planned(*place(*BORROWED), paused_teams={"team-b"}) is NOTHING


def test_no_snapshot_is_taken_where_all_have_room_under_their_limits():
    def taken():
        raise AssertionError("a snapshot costs milliseconds")

    world, reclaim_index = place(*BORROWED[:3])
    assert plan_line(world, reclaim_index, taken) is NOTHING


def test_guaranteed_pods_stay_whatever_waits():
    guaranteed = [borrower(f"a{number}", on="n0", team="team-a") for number in range(2)]
    world, reclaim_index = place(*guaranteed, asker("b", 2, team="team-a"))
    found = planned(world, reclaim_index)
    assert {each.team for move in found.moves for each in move.victims} <= {"team-a"}
    assert {name for _, names in victims(found) for name in names} <= {"a0", "a1"}


def test_no_room_is_counted_on_a_held_node():
    world, reclaim_index = place(*BORROWED)
    found = planned(world, reclaim_index, held=[NodeName("n0"), NodeName("n1")])
    assert (found.moves, len(found.refused)) == ((), 1)


def test_a_charged_pod_that_has_its_room_already_takes_no_other_room():
    first = asker("first", team="team-d")
    world, reclaim_index = place(*BORROWED, *FAR[:3], first)
    assert victims(planned(world, reclaim_index)) == [("own", ["a2"])]
    room = NodeHold("h", NodeName("n1"), 0, (Beneficiary(first.uid, first.namespace, first.name),))
    reclaim_index.evictions.keep(room.node, room, is_going=reclaim_index.is_going)
    found = planned(world, reclaim_index)
    assert isinstance(found, LimitRound)
    assert victims(found) == [("own", ["a2"])]


FULL = [reclaim_pod(f"f{number}", on="n1", team="team-d", tier="guaranteed") for number in range(4)]
AT = {name: Constraints((("host", name),)) for name in ("n0", "n1", "n9")}
NO_PLACE = {
    "a node that is full of another team's guaranteed pods": {"constraints": AT["n1"]},
    "a node that does not exist": {"constraints": AT["n9"]},
    "pods that are nowhere": {
        "topology": (AffinityRule(("host",), False, LabelSelector((requirement("app", "In", "none"),))),)
    },
    "a claim that is not there": {"claims": (ClaimRef(claim="none"),)},
}


class TestPodsWithoutAPlace:
    """Nothing is evicted for a pod that would find no room."""

    def placed(self, *line):
        found = place(*BORROWED, *FULL, line=line)
        for name, rack in (("n0", "r0"), ("n1", "r1")):
            found[0].set_node(node(name, gpus=4, labels={"host": name, "rack": rack}))
        return found

    @pytest.mark.parametrize("asks", NO_PLACE.values(), ids=NO_PLACE.keys())
    def test_none_goes_for_one_that_asks_for(self, asks):
        found = planned(*self.placed(waiting("own", namespace="team-b", **asks)))
        assert victims(found) == []
        assert victims(planned(*self.placed(waiting("own", namespace="team-b", constraints=AT["n0"])))) != []

    @pytest.mark.parametrize(("places", "want"), [((None, None), 2), ((None, "n1"), 0)], ids=["room", "one has none"])
    def test_none_goes_for_a_gang_of_which_one_has_no_place(self, places, want):
        constraints = [Constraints() if name is None else AT[name] for name in places]
        found = planned(*self.placed(*self.gang(*({"constraints": each} for each in constraints))))
        assert sum(len(names) for _, names in victims(found)) == want

    def test_a_gang_has_its_room_in_the_domain_that_it_requires_or_none_goes(self):
        found = planned(*self.placed(*self.gang({"domain": ONE_RACK}, {"domain": ONE_RACK})))
        assert sorted(name for _, names in victims(found) for name in names) == ["a2", "a3"]
        for ask, want in ((None, 2), (ONE_RACK, 0)):
            world, reclaim_index = self.placed(*self.gang({"domain": ask}, {"domain": ask}))
            world.remove_pod("f0")
            world.set_node(node("n0", gpus=3, labels={"host": "n0", "rack": "r0"}))
            assert sum(len(names) for _, names in victims(planned(world, reclaim_index))) == want

    def gang(self, *asks):
        return [
            member(f"m{number}", namespace="team-b", size=2, gang_whole=2, is_requested=True, **each)
            for number, each in enumerate(asks)
        ]


class TestBackfill:
    """Pods that started ahead of others run as preemptible, although their team's share has room for them."""

    def test_it_is_not_evicted_for_a_younger_pod_of_its_team_and_counts_in_the_share(self):
        own = [borrower(f"b{number}", on="n0", team="team-b", is_backfill=True) for number in range(2)]
        assert victims(planned(*place(*own, *BORROWED[:2]))) == []

    def test_the_one_that_borrows_goes_and_not_the_one_that_runs_inside_its_share(self):
        own = borrower("b", on="n0", team="team-b", is_backfill=True)
        borrowed = [borrower(f"a{number}", on="n0", started_at=1) for number in range(3)]
        assert victims(planned(*place(own, *borrowed))) == [("own", ["a2"])]
