"""The surplus of workloads goes first, evenly; minimums go last; nothing that a tenant states forbids a plan."""

from collections import Counter
from itertools import chain, combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU
from tests.core.support.scenes import NOW, gone, scene, victim, waiting
from tests.examples import examples
from webhook.core.model.amounts import ONE_GPU, GangId, WorkloadName
from webhook.core.model.pod import Replica
from webhook.core.model.policy import ReclaimCost
from webhook.core.reclaim.costs import Surplus, Trim
from webhook.core.reclaim.limit_victims import cheapest_under
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NO_OVERRIDES
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victims import VictimCost, share_used
from webhook.core.world.minimums import Minimums

WEB, CHAT, DRAW = (WorkloadName(f"team-a/Deployment/{name}") for name in ("web", "chat", "draw"))


def replica(name, workload=WEB, **more):
    return victim(name, replica_of=workload, **more)


def keeping(victims, minimums, *, elsewhere=()):
    """The replicas of victims and of `elsewhere`, all ready, with these minimums."""
    found = Minimums()
    for uid, workload in [*((each.uid, each.replica_of) for each in victims), *elsewhere]:
        if workload is not None:
            found.set_pod(uid, Replica(workload, minimums[workload]), is_ready=True)
    return found


def asked(victims, count, minimums, **more):
    """The names of the victims of a pod that needs so many GPUs on a full cluster."""
    return sorted(gone(plan([waiting(count=count)], scene(victims, minimums=keeping(victims, minimums), **more))))


class TestTrimming:
    def test_each_of_three_workloads_loses_one(self):
        three = {WEB: 1, CHAT: 1, DRAW: 1}
        there = [replica(f"{w.rpartition('/')[2]}-{n}", w, started=n) for w in three for n in range(3)]
        assert asked(there, 3, three, size=9) == ["chat-2", "draw-2", "web-2"], "the youngest of each"

    def test_the_workload_with_the_largest_surplus_gives_first(self):
        there = [*(replica(f"w{n}") for n in range(2)), *(replica(f"c{n}", CHAT) for n in range(6))]
        assert asked(there, 3, {WEB: 1, CHAT: 1}) == ["c0", "c1", "c2"]

    def test_surplus_goes_before_pods_that_lose_any_work(self):
        there = [*(replica(f"w{n}", started=1) for n in range(2)), victim("fresh", started=NOW - 1)]
        assert asked(there, 1, {WEB: 1}, size=3) == ["w0"]

    def test_a_minimum_goes_after_pods_that_lose_more_work(self):
        there = [*(replica(f"w{n}", started=NOW, saved=NOW) for n in range(2)), victim("old")]
        assert asked(there, 2, {WEB: 1}, size=3) == ["old", "w0"]

    def test_replicas_that_are_not_victims_count(self):
        there = [replica("w0"), victim("old", 1)]
        kept = keeping(there, {WEB: 1}, elsewhere=[("guaranteed", WEB)])
        assert gone(plan([waiting()], scene(there, size=2, minimums=kept))) == ["w0"]

    def test_a_round_counts_what_earlier_plans_of_it_take(self):
        there = [replica(f"w{n}", on=f"n{n}") for n in range(3)] + [victim("old", on="n3")]
        found = plan(
            [waiting(f"b{n}", since=n) for n in range(3)],
            scene(there, nodes=4, size=1, minimums=keeping(there, {WEB: 1})),
        )
        assert sorted(gone(found)) == ["old", "w0", "w1"]

    def test_equal_workloads_lose_one_each_over_a_round(self):
        there = [
            replica(f"{w.rpartition('/')[2]}-{n}", w, on=f"n{n}{i}")
            for i, w in enumerate((WEB, CHAT))
            for n in range(3)
        ]
        names = {each.node: f"n{place}" for place, each in enumerate(there)}
        there = [each._replace(node=names[each.node]) for each in there]
        kept = keeping(there, {WEB: 1, CHAT: 1})
        found = plan([waiting("b0"), waiting("b1")], scene(there, nodes=6, size=1, minimums=kept))
        assert Counter(name[:3] for name in gone(found)) == {"web": 1, "cha": 1}

    def test_a_limit_is_freed_by_surplus_too(self):
        there = [*(replica(f"w{n}") for n in range(3)), *(replica(f"c{n}", CHAT) for n in range(3)), victim("x", 2)]
        trial = Trial(scene(there, minimums=keeping(there, {WEB: 1, CHAT: 1})))
        try:
            found = cheapest_under(2 * ONE_GPU, there, scale=trial.scale(there[0].team, NO_OVERRIDES))
        finally:
            trial.undo(0)
        assert found is not None
        assert {each.replica_of for each in found.victims} == {WEB, CHAT}


class TestNoShield:
    """A minimum outside the share never keeps borrowed GPUs from their owner."""

    @pytest.mark.parametrize("minimum", [2, 3, 99_999], ids=["all of them", "one more", "any number"])
    def test_a_minimum_of_all_replicas_gives_nothing(self, minimum):
        there = [replica(f"w{n}", started=NOW, saved=NOW) for n in range(2)] + [victim("old")]
        assert asked(there, 1, {WEB: minimum}, size=3) == ["w0"], "as without a minimum: it lost no work yet"

    def test_many_workloads_of_one_replica_go_like_any_pods(self):
        names = [WorkloadName(f"team-a/Deployment/w{n}") for n in range(8)]
        there = [replica(f"w{n}", name, started=n, saved=n) for n, name in enumerate(names)]
        assert asked(there, 2, dict.fromkeys(names, 1)) == ["w6", "w7"]

    def test_where_only_minimums_are_left_they_go_at_once_from_as_few_workloads_as_possible(self):
        there = [replica(f"{w.rpartition('/')[2]}-{n}", w) for w in (WEB, CHAT) for n in range(4)]
        found = plan([waiting(count=4)], scene(there, minimums=keeping(there, {WEB: 3, CHAT: 3})))
        assert Counter(name[:3] for name in gone(found)) in ({"web": 3, "cha": 1}, {"web": 1, "cha": 3})
        assert found.moves[0].cost.below == 1

    def test_a_minimum_of_a_gang_that_shares_devices_or_not_all_of_which_is_ready_keeps_none(self):
        there = [victim(f"g{n}", 2, gang="g", replica_of=WEB if n else None) for n in range(4)]
        assert asked(there, 8, {WEB: 1}) == ["g0", "g1", "g2", "g3"]


class TestElasticGangs:
    def gang(self, size, count=1, **more):
        return [replica(f"g{n}", count=count, gang="g", **more) for n in range(size)]

    def test_one_member_goes_where_one_is_enough(self):
        there = [*self.gang(4, started=5), *(victim(f"s{n}") for n in range(4))]
        assert asked(there, 1, {WEB: 2}) == ["g0"]

    def test_below_its_minimum_it_goes_whole_and_after_all_others(self):
        there = [*self.gang(4, started=NOW), *(victim(f"s{n}") for n in range(4))]
        assert asked(there, 6, {WEB: 2}) == ["g0", "g1", "s0", "s1", "s2", "s3"]
        assert asked(there, 7, {WEB: 2}) == ["g0", "g1", "g2", "g3", "s0", "s1", "s2"]

    def test_a_trimmed_member_is_no_part_of_a_gang_any_more(self):
        (move,) = plan([waiting()], scene(there := self.gang(8), minimums=keeping(there, {WEB: 2}))).moves
        assert [each.gang for each in move.victims] == [None]

    def test_members_that_are_all_beyond_the_minimum_go_one_by_one(self):
        there = self.gang(8)
        kept = keeping(there, {WEB: 2}, elsewhere=[("a", WEB), ("b", WEB)])
        assert len(gone(plan([waiting(count=3)], scene(there, minimums=kept)))) == 3

    def test_other_members_without_a_minimum_go_with_the_whole_gang_alone(self):
        there = [victim("head", gang="g"), *self.gang(3), *(victim(f"s{n}") for n in range(4))]
        assert asked(there, 2, {WEB: 1}) == ["g0", "g1"]
        assert asked(there, 7, {WEB: 1}) == ["g0", "g1", "g2", "head", "s0", "s1", "s2"]


def test_drawing_says_what_minimums_cost():
    surplus = Surplus(keeping([replica(f"w{n}") for n in range(4)], {WEB: 2}))
    taken = {}
    assert surplus.draw(taken, (Trim(WEB, 1),)) == VictimCost(failures=share_used(2))
    assert surplus.draw(taken, (Trim(WEB, 1),)) == VictimCost(failures=share_used(1))
    assert surplus.draw(taken, (Trim(WEB, 1, is_member=True),)) is None, "a gang keeps its minimum"
    assert surplus.draw(taken, (Trim(WEB, 1),)) == VictimCost(below=1, failures=share_used(0))
    assert surplus.draw(taken, (Trim(WEB, 1),)) == VictimCost(failures=share_used(0)), "below it is below it"
    assert surplus.draw(taken, (Trim(WEB, 4, is_whole=True),)) is None, "some of it went already"
    assert surplus.draw(whole := {}, (Trim(WEB, 4, is_whole=True),)) == VictimCost(below=1)
    assert surplus.draw(whole, (Trim(WEB, 1, is_member=True),)) is None


# -- against every choice


@st.composite
def elastic_scenes(draw):
    """One or two nodes with replicas of workloads, members of elastic gangs and others."""
    nodes, victims = draw(st.integers(1, 2)), []
    for place in range(nodes):
        for _ in range(draw(st.integers(1, 5))):
            name, workload = f"v{len(victims)}", draw(st.sampled_from([None, WEB, CHAT, DRAW]))
            gang = "g" if workload is DRAW else draw(st.sampled_from([None, None, "h"])) if workload is None else None
            when = draw(st.integers(0, 6))
            victims.append(
                victim(name, draw(st.integers(1, 2)), on=f"n{place}", started=when, gang=gang, replica_of=workload)
            )
    minimums = {workload: draw(st.integers(0, 4)) for workload in (WEB, CHAT, DRAW)}
    elsewhere = [(f"e{n}", draw(st.sampled_from([WEB, CHAT, DRAW]))) for n in range(draw(st.integers(0, 2)))]
    order = tuple(draw(st.permutations(ReclaimCost)))
    size = max(sum(dict(each.demand.requests)[GPU] for each in victims if each.node == f"n{n}") for n in range(nodes))
    return scene(
        victims,
        nodes=nodes,
        size=size,
        order=order,
        minimums=keeping(victims, minimums, elsewhere=elsewhere),
        others=[victim(f"x{n}", fill, on=f"n{n}") for n in range(nodes) if (fill := size - _held(victims, n))],
    )


def _held(victims, number):
    return sum(dict(each.demand.requests)[GPU] for each in victims if each.node == f"n{number}")


def price(scene_, alone, whole, lacking):
    """The cost of victims that go alone, and of gangs that go whole, where nodes lack so much; None for no choice."""
    members = [*alone, *chain.from_iterable(whole)]
    freed = Counter()
    for each in members:
        freed[each.node] += each.demand.gpus
    if any(freed[node] < units for node, units in lacking.items()):
        return None
    if {each.gang for each in alone if each.gang} & {unit[0].gang for unit in whole}:
        return None
    below = failures = 0
    for workload in (WEB, CHAT, DRAW):
        replicas = scene_.minimums.of(workload)
        if replicas is None or not replicas.has_surplus:
            if any(each.replica_of is workload and each.gang for each in alone):
                return None
            continue
        count = sum(each.replica_of is workload for each in alone)
        if workload is DRAW and count > replicas.spare:
            return None
        below += count > replicas.spare
        failures += sum(share_used(replicas.spare - number) for number in range(count))
    lost = sum(each.demand.gpus * (NOW - each.saved_at) for each in alone if not _counts(scene_, each))
    return VictimCost(
        gangs=sum(_loses_more(unit, lacking) for unit in whole),
        below=below + sum(any(_counts(scene_, each) for each in unit) for unit in whole),
        failures=failures,
        surplus=sum(each.demand.gpus for each in members) - sum(lacking.values()),
        lost_work=lost + sum(each.demand.gpus * (NOW - each.saved_at) for each in chain.from_iterable(whole)),
        age=sum(NOW - each.started_at for each in members),
    )


def _counts(scene_, each):
    replicas = None if each.replica_of is None else scene_.minimums.of(each.replica_of)
    return replicas is not None and replicas.has_surplus


def _loses_more(unit, lacking):
    freed = Counter()
    for each in unit:
        freed[each.node] += each.demand.gpus
    left = [freed[each.node] - each.demand.gpus >= lacking.get(each.node, 0) for each in unit]
    return len(unit) > 1 and any(left)


def _all(items):
    return chain.from_iterable(combinations(items, count) for count in range(len(items) + 1))


def least(scene_, *counts):
    """The rank of the cheapest choice of all, for pods on any nodes; all nodes are full."""
    ranks = []
    everyone = list(scene_.victim_index)
    gangs = [unit for name in "gh" if (unit := [each for each in everyone if each.gang == GangId(name)])]
    for places in product([node.name for node in scene_.fleet.nodes()], repeat=len(counts)):
        lacking = Counter()
        for place, count in zip(places, counts, strict=True):
            lacking[place] += count * ONE_GPU
        there = [each for each in everyone if each.node in lacking and (each.gang is None or each.replica_of)]
        for alone in _all(there):
            for whole in _all([unit for unit in gangs if any(each.node in lacking for each in unit)]):
                found = price(scene_, alone, whole, lacking)
                if found is not None:
                    ranks.append(found.ranked(scene_.order))
    return min(ranks, default=None)


@examples(60)
@given(elastic_scenes(), st.integers(1, 6))
def test_no_choice_costs_less(scene_, count):
    found = plan([waiting(count=count)], scene_)
    rank = found.moves[0].cost.ranked(scene_.order) if found.moves else None
    want = least(scene_, count)
    assert rank == want


@examples(40)
@given(elastic_scenes(), st.integers(1, 3), st.integers(1, 3))
def test_no_choice_costs_less_for_two_pods_together(scene_, one, other):
    found = plan([waiting("b0", count=one), waiting("b1", count=other)], scene_)
    want = least(scene_, one, other)
    if want is not None and len(found.moves) == 2:
        rank = VictimCost.total(move.cost for move in found.moves).ranked(scene_.order)
        assert rank <= want, "less where a gang loses a member for one pod, and the rest of it for the other"
