"""Plans for pods in line: whose end makes room under limits, and properties of every round."""

import pytest
from hypothesis import given

from tests.core.support.limits import LEVELS, asked, gone, level, limit_scenes
from tests.core.support.make import gpus
from tests.core.support.scenes import NOW, causes, scene, victim
from tests.core.support.scenes import waiting as charged
from tests.examples import examples
from webhook.core.model.amounts import Uid
from webhook.core.reclaim.limit_plan import plan_limits
from webhook.core.reclaim.reclaim_plan import NoPlan

TREE = ("team team-b", "department left", "department top")


def free(there):
    return [[there.fleet.free(each.name, name) for name in each.allocatable] for each in there.fleet.nodes()]


class TestWhoGoes:
    def test_the_cheapest_borrower_under_the_limit_goes_wherever_it_runs(self):
        there = scene([victim("old", started=1), victim("new", on="n1", started=9)], nodes=2)
        found = plan_limits([asked()], [level()], there)
        assert gone(found) == ["new"]
        assert found.moves[0].levels == ("department left",)

    def test_a_borrower_of_another_department_stays_however_cheap(self):
        there = scene([victim("near", started=1), victim("far", team="team-d", started=9)])
        assert gone(plan_limits([asked()], [level()], there)) == ["near"]
        alone = scene([victim("far", team="team-d", started=9)])
        assert causes(plan_limits([asked()], [level()], alone)) == {"b": NoPlan.LIMITS_FULL}

    def test_one_eviction_frees_the_limit_and_room_on_a_full_node(self):
        """The cheapest borrower of all would free no room that the pod can use."""
        full = [
            victim("elsewhere", 8, on="n1", started=9),
            victim("here", 1, started=1),
            victim("far", 7, team="team-d"),
        ]
        there = scene(full, nodes=2)
        only = there.fleet.bit("n0")
        assert gone(plan_limits([asked(slots=only)], [level()], there)) == ["here"]

    def test_a_gang_goes_whole(self):
        there = scene([victim("a1", gang="team-a/g"), victim("a2", on="n1", gang="team-a/g")], nodes=2)
        assert sorted(gone(plan_limits([asked()], [level()], there))) == ["a1", "a2"]

    def test_the_lowest_limit_is_freed_by_its_own_teams_and_the_higher_ones_with_it(self):
        borrowed = [victim("own", team="team-b", started=1), victim("near", started=8), victim("top", team="team-c")]
        levels = [level("team team-b"), level("department left"), level("department top", free=-1)]
        found = plan_limits([asked(levels=TREE)], levels, scene(borrowed))
        assert sorted(gone(found)) == ["near", "own"]

    def test_a_borrower_that_serves_alone_spares_a_smaller_one_chosen_first(self):
        """The small one would free the node, the large one is needed for the limit, and frees a node too."""
        full = [victim("small", 1, started=9), victim("large", 2, on="n1", started=1)]
        there = scene(full, nodes=2, size=2, others=[victim("o", team="team-b")])
        assert gone(plan_limits([asked(count=2)], [level()], there)) == ["large"]

    def test_a_protected_minimum_runtime_protects_here_too(self):
        there = scene([victim("a", until=NOW + 60)])
        assert causes(plan_limits([asked()], [level()], there)) == {"b": NoPlan.LIMITS_FULL}


class TestNoEviction:
    def test_none_goes_where_the_limit_has_room(self):
        found = plan_limits([asked()], [level(free=1)], scene([victim("a")]))
        assert [(move.levels, move.victims) for move in found.moves] == [((), ())]

    def test_none_goes_where_pods_that_leave_make_the_room(self):
        found = plan_limits([asked()], [level(coming=1)], scene([victim("a")]))
        assert [(move.levels, move.victims) for move in found.moves] == [(("department left",), ())]

    def test_none_goes_for_a_pod_that_would_find_no_node(self):
        full = [victim("o", 8, team="team-b")]
        there = scene([victim("a", on="n1")], nodes=2, others=full)
        only = there.fleet.bit("n0")
        assert causes(plan_limits([asked(slots=only)], [level()], there)) == {"b": NoPlan.LIMITS_FULL}
        assert causes(plan_limits([asked(slots=0)], [level()], there)) == {"b": NoPlan.NO_NODE}

    def test_charged_pods_that_wait_for_a_node_take_their_room_first(self):
        there = scene([victim("a", on="n1", team="team-a")], nodes=1, size=1)
        assert gone(plan_limits([asked()], [level()], there)) == ["a"]
        assert gone(plan_limits([asked()], [level()], there, ahead=[charged("first")])) == []

    def test_where_only_part_of_a_gang_has_room_none_of_it_has(self):
        there = scene([victim("a")])
        group = asked("b1", gang="g") + asked("b2", gang="g")
        found = plan_limits([group], [level()], there)
        assert found.moves == ()
        assert set(causes(found)) == {"b1", "b2"}

    def test_a_pod_of_a_gang_waits_for_the_limits_of_all_of_them(self):
        """The first could start at once, were it alone."""
        there = scene([victim("a")])
        group = asked("b1", gang="g") + asked("b2", gang="g")
        found = plan_limits([group], [level(free=1)], there)
        assert gone(found) == ["a"]
        assert [move.levels for move in found.moves] == [("department left",)] * 2

    def test_two_pods_do_not_count_on_the_same_room(self):
        there = scene([victim("a1"), victim("a2")])
        assert sorted(gone(plan_limits([asked("b1"), asked("b2", since=1)], [level()], there))) == ["a1", "a2"]
        assert len(gone(plan_limits([asked("b1"), asked("b2", since=1)], [level(free=1)], there))) == 1


class TestANodeThatOthersFree:
    def test_the_limit_is_freed_and_the_node_is_left_to_the_plan_for_nodes(self):
        there = scene([victim("near", on="n1"), victim("far", 8, team="team-d")], nodes=2)
        found = plan_limits([asked(slots=there.fleet.bit("n0"))], [level()], there)
        assert gone(found) == ["near"]


class TestTheNextRound:
    def test_victims_that_are_announced_are_kept_although_others_are_cheaper_by_now(self):
        there = scene([victim("announced", started=1), victim("cheaper", started=9)])
        found = plan_limits([asked()], [level()], there, before={Uid("b"): {Uid("announced")}})
        assert gone(found) == ["announced"]

    def test_victims_that_are_no_longer_needed_are_spared(self):
        there = scene([victim("a1"), victim("a2")])
        found = plan_limits([asked()], [level()], there, before={Uid("b"): {Uid("a1"), Uid("a2")}})
        assert len(gone(found)) == 1
        eased = plan_limits([asked()], [level(free=1)], there, before={Uid("b"): {Uid("a1")}})
        assert gone(eased) == []

    def test_a_victim_that_the_api_server_did_not_evict_is_replaced(self):
        there = scene([victim("refused", started=9), victim("other", started=1)], refused=frozenset({Uid("refused")}))
        found = plan_limits([asked()], [level()], there, before={Uid("b"): {Uid("refused")}})
        assert gone(found) == ["other"]

    def test_the_others_keep_their_notice_where_one_is_no_longer_to_be_had(self):
        cheap = [victim(f"cheap{n}", started=9) for n in range(2)]
        there = scene([victim("refused"), victim("announced", started=1), *cheap], refused=frozenset({Uid("refused")}))
        before = {Uid("b"): {Uid("refused"), Uid("announced")}}
        found = plan_limits([asked(count=2)], [level()], there, before=before)
        assert gone(found) == ["announced", "cheap0"]


def is_enough(victims, short, levels, taken):
    return all(
        level.free + level.coming - taken + sum(v.demand.gpus for v in victims if v.team in level.teams) >= 0
        for level in levels
        if level.name in short
    )


@pytest.mark.slow
@given(limit_scenes())
@examples(300)
def test_every_round_evicts_what_is_needed_and_no_more(drawn):
    """No victim outside of the limits in the way, none twice, none in part of a gang, and none that could stay."""
    groups, levels, there = drawn
    before = free(there)
    found = plan_limits(groups, levels, there)
    assert free(there) == before
    assert plan_limits(groups, levels, there) == found
    victims = [each for move in found.moves for each in move.victims]
    assert len(victims) == len(set(victims))
    by_name = {each.name: each for each in levels}
    taken, freed = 0, ()
    for move in found.moves:
        short = move.levels
        allowed = set().union(*(LEVELS[name] for name in short))
        assert {each.team for each in move.victims} <= allowed
        taken += move.waiting.demand.gpus
        freed += move.victims
        assert is_enough(freed, short, levels, taken)
        for gang in {each.gang for each in move.victims if each.gang is not None}:
            whole = {each for each in there.victim_index if each.gang == gang}
            assert whole <= set(freed)
        assert all(by_name[name].free < taken for name in short)


@pytest.mark.slow
@given(limit_scenes())
@examples(300)
def test_the_first_pod_could_do_without_none_of_its_victims(drawn):
    groups, levels, there = drawn
    found = plan_limits(groups[:1], levels, there)
    for move in found.moves:
        units = {each.gang or each.uid for each in move.victims}
        for unit in units:
            rest = [each for each in move.victims if (each.gang or each.uid) != unit]
            misses_limit = not is_enough(rest, move.levels, levels, move.waiting.demand.gpus)
            assert misses_limit or not has_node(there, move.waiting, rest)


def has_node(there, waiting, gone_):
    freed = {}
    for each in gone_:
        freed[each.node] = freed.get(each.node, 0) + each.demand.gpus
    size = waiting.demand.gpus
    return any(
        sum(there.fleet.free(node.name, name) for name in node.allocatable if "gpu" in name) * gpus(1)
        + freed.get(node.name, 0)
        >= size
        for node in there.fleet.nodes()
    )


@given(limit_scenes())
@examples(200)
def test_no_pod_is_evicted_for_a_pod_that_would_not_fit_afterwards(drawn):
    """With all borrowers gone, some node has room for each pod that others are evicted for."""
    groups, levels, there = drawn
    for move in plan_limits(groups[:1], levels, there).moves:
        if move.victims:
            assert has_node(there, move.waiting, list(there.victim_index))
