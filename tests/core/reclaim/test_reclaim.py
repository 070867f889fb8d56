"""Victim plans against the meaning of the words, and against trying every choice there is."""

from collections import Counter
from dataclasses import replace
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, gpus, node, requirement, resident
from webhook.core.model.amount import ONE_GPU, UNLIMITED
from webhook.core.model.labels import pack
from webhook.core.model.names import Namespace, NodeName, TeamName, Uid
from webhook.core.model.policy import LabelSelector, ReclaimCost
from webhook.core.model.selector import NO_CONSTRAINTS, Constraints, NodeTerm
from webhook.core.model.topology import AffinityRule
from webhook.core.peers.pod_counts import PlacedPod, PodCounts
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Cause, Hold, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pod import ReclaimPod, Report
from webhook.core.reclaim.victim import GangId, GuardId, Victim, VictimIndex
from webhook.core.reclaim.victim_search import Cost

NOW = 100_000
SMALL = {"cpu": 1000, "memory": 1}


def victim(name, count=1, *, on="n0", team="team-a", started=0, saved=None, gang=None, **more):
    return Victim(
        Uid(name),
        Namespace(team),
        name,
        TeamName(team),
        NodeName(on),
        demand(count, **SMALL),
        started_at=started,
        saved_at=started if saved is None else saved,
        gang=None if gang is None else GangId(gang),
        **more,
    )


def waiting(name="b", count=1, *, since=0, gang=None, constraints=NO_CONSTRAINTS, **more):
    wants = more.pop("demand", None) or demand(count, **SMALL)
    return ReclaimPod(
        resident(uid=name, namespace="team-b", demand=wants, created=since),
        constraints=constraints,
        gang=None if gang is None else GangId(gang),
        report=Report(more.pop("reported_at", 0)),
        **more,
    )


def scene(victims, *, nodes=1, size=8, others=(), **more):
    fleet = Fleet()
    fleet.track(GPU)
    for number in range(nodes):
        fleet.set(node(f"n{number}", gpus=size, labels={"host": f"n{number}"}))
    for each in (*victims, *others):
        fleet.take(each.node, each.demand, holder=each.uid)
    return ReclaimSnapshot(fleet=fleet, victim_index=VictimIndex(victims), now=NOW, **more)


def gone(round_):
    return [each.name for move in round_.moves for each in move.victims]


def causes(round_):
    return {each.waiting.name: each.cause for each in round_.refused}


APP = {"app": "web"}
APART = AffinityRule(("host",), True, LabelSelector((requirement("app", "In", "web"),)))
"""A pod of the app keeps away from nodes with another."""


def alone(name="b", count=1, **more):
    return waiting(name, count, labels=APP, topology=(APART,), **more)


def like(*nodes):
    """Pods of the app on these nodes."""
    found = PodCounts()
    there = [resident(uid=f"s-{name}", namespace="team-b", packed=pack(APP), node=name) for name in nodes]
    found.sources.append(lambda namespace: [PlacedPod(pod, pod.node) for pod in there if pod.namespace == namespace])
    return found


# -- what the words mean


def test_pods_that_have_room_are_thought_where_the_gate_sent_them_and_nobody_goes():
    """The older one could be on n0 too; there it would take the room of the other, who may go nowhere else."""
    there = Constraints(terms=(NodeTerm((), (requirement("metadata.name", "In", "n0"),)),))
    older = waiting("b0", chosen=("n1", "n0"), since=1)
    younger = waiting("b1", chosen=("n0",), constraints=there, since=2)
    full = [victim(f"a{n}", on=f"n{n % 2}") for n in range(14)]
    found = plan([older, younger], scene(full, nodes=2))
    assert [each.cause for each in found.refused] == [Cause.FITS, Cause.FITS]


def test_exactly_enough_goes_on_one_node():
    borrowed = [victim(f"a{n}-{g}", on=f"n{n}") for n in range(3) for g in range(8)]
    found = plan([waiting(count=4)], scene(borrowed, nodes=3))
    (move,) = found.moves
    assert {each.node for each in move.victims} == {move.node}
    assert len(move.victims) == 4
    assert move.cost.surplus == 0


def test_what_is_left_of_one_clearing_serves_the_next():
    found = plan([waiting("b1"), waiting("b2")], scene([victim("a", 2), victim("x", 6)]))
    assert gone(found) == ["a"]
    assert [move.victims for move in found.moves][1] == ()


def test_the_pod_saved_last_goes_first():
    borrowed = [victim("old", saved=10), victim("fresh", saved=NOW - 5), *(victim(f"m{n}", saved=50) for n in range(6))]
    assert gone(plan([waiting()], scene(borrowed))) == ["fresh"]


def test_a_gang_goes_whole_and_only_if_singles_will_not_do():
    gang = [victim(f"g{n}", 2, on=f"n{n}", gang="train") for n in range(4)]
    singles = [victim(f"s{n}", 1, on=f"n{n}") for n in range(4)]
    assert gone(plan([waiting(count=1)], scene([*gang, *singles], nodes=4, size=3))) == ["s0"]
    assert sorted(gone(plan([waiting(count=3)], scene([*gang, *singles], nodes=4, size=3)))) == [
        "g0", "g1", "g2", "g3", "s0"
    ]  # fmt: skip


def test_the_team_furthest_over_its_share_gives_first():
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
    assert causes(plan([waiting()], scene(borrowed))) == {"b": Cause.NOT_ENOUGH_VICTIMS}


def test_a_budget_lets_only_so_many_go():
    guard = GuardId("pdb")
    borrowed = [victim(f"a{n}", guards=(guard,)) for n in range(8)]
    wants = [waiting(f"b{n}", since=n) for n in range(3)]
    found = plan(wants, scene(borrowed, left={guard: 2}))
    assert len(gone(found)) == 2
    assert causes(found) == {"b2": Cause.NOT_ENOUGH_VICTIMS}


def test_nothing_goes_for_a_pod_that_fits_or_never_would():
    borrowed = [victim(f"a{n}") for n in range(7)]
    elsewhere = Constraints(node_selector=(("zone", "moon"),))
    found = plan([waiting("fits"), waiting("huge", 9), waiting("picky", constraints=elsewhere)], scene(borrowed))
    assert found.moves == ()
    assert causes(found) == {"fits": Cause.FITS, "huge": Cause.NO_NODE, "picky": Cause.NO_NODE}


def test_two_that_wait_do_not_both_count_on_one_free_gpu():
    borrowed = [victim(f"a{n}", started=n) for n in range(7)]
    found = plan([waiting("first"), waiting("second", since=1)], scene(borrowed))
    assert causes(found) == {"first": Cause.FITS}
    assert gone(found) == ["a6"]


def test_room_on_its_way_needs_no_victim():
    borrowed = [victim(f"a{n}") for n in range(8)]
    leaving = ReclaimPod(resident(uid="a3", node="n0", demand=borrowed[3].demand))
    found = plan([waiting()], scene(borrowed, leaving=[leaving]))
    assert [(move.node, move.victims) for move in found.moves] == [("n0", ())]


def test_room_that_is_promised_is_nobody_elses():
    borrowed = [victim(f"a{n}", started=n) for n in range(7)]
    hold = Hold(waiting("b0"), NodeName("n0"))
    found = plan([waiting("b0"), waiting("b1")], scene(borrowed, holds=[hold]))
    assert [move.waiting.name for move in found.moves] == ["b1"]
    assert gone(found) == ["a6"]


def test_a_gang_that_cannot_be_seated_whole_costs_nobody_anything():
    borrowed = [victim(f"a{n}") for n in range(8)]
    gang = [waiting(f"b{n}", 3, gang="train") for n in range(3)]
    found = plan([*gang, waiting("single", since=9)], scene(borrowed))
    assert len(gone(found)) == 1
    assert causes(found) == {
        "b0": Cause.GANG_INCOMPLETE, "b1": Cause.GANG_INCOMPLETE, "b2": Cause.NOT_ENOUGH_VICTIMS
    }  # fmt: skip


# -- against who hides borrowed GPUs


def test_a_gang_is_as_old_as_its_oldest_member():
    """A fresh pod with the label, again and again, would keep the others for ever."""
    gang = [victim(f"g{n}", 2, gang="train", until=NOW + 60 * n) for n in range(4)]
    assert sorted(gone(plan([waiting()], scene(gang)))) == ["g0", "g1", "g2", "g3"]
    young = [victim(f"g{n}", 2, gang="train", until=NOW + 60) for n in range(4)]
    assert causes(plan([waiting()], scene(young))) == {"b": Cause.NOT_ENOUGH_VICTIMS}


def test_a_member_that_may_not_go_shields_nobody():
    gang = [victim(f"g{n}", 4, gang="train") for n in range(2)]
    assert gone(plan([waiting()], scene(gang, spared={"g0"}))) == ["g1"]


def test_a_minimum_runtime_begins_no_more_after_somebody_waits():
    """Else whoever deletes his pods in time and creates them again would borrow for ever."""
    again = [victim(f"a{n}", 4, started=NOW - 10, until=NOW + 50) for n in range(2)]

    def found(at):
        return plan([waiting(reported_at=at)], scene(again, minimum_runtime=60))

    assert causes(found(NOW - 10)) == {"b": Cause.NOT_ENOUGH_VICTIMS}
    assert len(gone(found(NOW - 11))) == 1


def test_budgets_count_for_as_long_as_policy_says():
    guard = GuardId("pdb")
    guarded = [victim(f"a{n}", guards=(guard,)) for n in range(8)]
    asks = waiting(reported_at=NOW - 300)

    def found(seconds, **more):
        return plan([asks], scene(guarded, left={guard: 0}, budget_seconds=seconds, **more))

    assert causes(found(UNLIMITED)) == causes(found(301)) == {"b": Cause.NOT_ENOUGH_VICTIMS}
    assert [(len(move.victims), move.is_past_budgets) for move in found(300).moves] == [(1, True)]
    assert found(300, spared={f"a{n}" for n in range(8)}).moves == ()


def test_whom_the_api_server_will_not_evict_goes_once_budgets_do_not_count():
    there = [victim("a", 8)]
    late, soon = waiting(reported_at=NOW - 300), waiting(reported_at=NOW - 299)
    refused = scene(there, refused={"a"}, budget_seconds=300)
    assert plan([soon], refused).moves == ()
    assert gone(plan([late], refused)) == ["a"]


def test_budgets_are_kept_while_others_can_go():
    there = [victim("guarded", saved=NOW, guards=(GuardId("pdb"),)), victim("free", saved=5), victim("x", 6)]
    found = plan([waiting(reported_at=1)], scene(there, left={GuardId("pdb"): 0}, budget_seconds=0))
    assert (gone(found), found.moves[0].is_past_budgets) == (["free"], False)


def test_a_plan_that_needs_more_pods_than_a_team_may_lose_in_a_minute_is_made_all_the_same():
    """GPUs borrowed in small pieces would never come back as one."""
    small = [victim(f"a{n}") for n in range(8)]
    wants = [waiting("b0", 4), waiting("b1", since=1)]
    found = plan(wants, scene(small, quotas={TeamName("team-a"): 1}))
    assert len(gone(found)) == 4
    assert causes(found) == {"b1": Cause.NOT_ENOUGH_VICTIMS}
    assert plan(wants, scene(small, quotas={TeamName("team-a"): 0})).moves == ()


# -- against every choice there is

counts = st.integers(1, 3)


@st.composite
def scenes(draw, *, nodes=3, size=6):
    """A small cluster, wholly or partly borrowed: singles, gangs, budgets, other people's pods."""
    victims, others = [], []
    for place in range(nodes):
        room = size
        while room > 0 and draw(st.integers(0, 5)):
            count = min(room, draw(counts))
            room -= count
            if draw(st.integers(0, 4)):
                number = len(victims)
                victims.append(
                    victim(
                        f"v{number}",
                        count,
                        on=f"n{place}",
                        team=draw(st.sampled_from(["team-a", "team-c"])),
                        started=draw(st.integers(0, 3)),
                        saved=draw(st.integers(3, 6)),
                        gang=draw(st.sampled_from([None, None, None, "g", "h"])),
                        guards=draw(st.sampled_from([(), (), (GuardId("one"),)])),
                        until=draw(st.sampled_from([0, 0, 0, NOW + 1])),
                    )
                )
            else:
                others.append(victim(f"o{place}-{room}", count, on=f"n{place}"))
    over = {TeamName("team-a"): gpus(draw(st.integers(0, 3))), TeamName("team-c"): gpus(1)}
    order = draw(st.sampled_from([tuple(ReclaimCost), tuple(reversed(ReclaimCost))]))
    return scene(victims, nodes=nodes, size=size, others=others, over_share=over, left={GuardId("one"): 1}, order=order)


# -- pods that heed the pods around them


def test_nobody_goes_on_a_node_with_pods_that_the_waiting_one_keeps_away_from():
    borrowed = [victim("cheap", saved=NOW), victim("x", 7), victim("dear", on="n1", saved=0), victim("y", 7, on="n1")]
    assert gone(plan([waiting()], scene(borrowed, nodes=2))) == ["cheap"]
    assert gone(plan([alone()], scene(borrowed, nodes=2, pod_counts=like("n0")))) == ["dear"]
    found = plan([alone()], scene(borrowed, nodes=2, pod_counts=like("n0", "n1")))
    assert (found.moves, causes(found)) == ((), {"b": Cause.TOPOLOGY_UNMET})


def test_free_room_beside_them_is_no_room():
    assert gone(plan([alone()], scene([victim("a", 8, on="n1")], nodes=2, pod_counts=like("n0")))) == ["a"]


def test_those_that_keep_apart_get_room_on_nodes_of_their_own():
    borrowed = [victim(f"a{n}{on}", 4, on=on) for n in range(2) for on in ("n0", "n1")]
    members = [alone(f"b{number}", gang="serving") for number in range(3)]
    found = plan(members[:2], scene(borrowed, nodes=2))
    assert {move.node for move in found.moves} == {"n0", "n1"}
    assert plan(members, scene(borrowed, nodes=2)).moves == (), "a third has no node of its own"


def test_pods_that_keep_off_the_waiting_one_count_as_well():
    borrowed = [victim("a", 8, saved=NOW), victim("b", 8, on="n1", saved=0)]
    keeper = resident(uid="k", namespace="team-b", node="n0", anti_affinity_rules=(APART,))
    found = PodCounts()
    found.change(keeper, "n0", 1)
    assert gone(plan([waiting(labels=APP)], scene(borrowed, nodes=2, pod_counts=found))) == ["b"]
    assert gone(plan([waiting()], scene(borrowed, nodes=2, pod_counts=found))) == ["a"]
    first = waiting("b0", 8, topology=(APART,))
    assert plan([first, waiting("b1", labels=APP)], scene(borrowed, nodes=2)).moves[1].node == "n1"


def test_one_for_which_room_is_kept_is_there_already():
    borrowed = [victim("a", 8), victim("b", 8, on="n1")]
    kept = Hold(waiting("b0", labels=APP), NodeName("n0"))
    (move,) = plan([alone("b1")], scene(borrowed, nodes=2, holds=[kept])).moves
    assert move.node == "n1"


def units(scene_):
    """Everything that can go: singles, and gangs whole."""
    made = {}
    for each in scene_.victim_index:
        made.setdefault(each.gang or each.uid, []).append(each)
    return [tuple(group) for group in made.values() if any(each.until <= NOW for each in group)]


def cost(scene_, chosen, asked, place):
    """The cost of sending these units away for a demand on a node, or None where that is not enough or not allowed."""
    members = list(chain.from_iterable(chosen))
    drawn = Counter(guard for each in members for guard in each.guards)
    if any(count > scene_.left[guard] for guard, count in drawn.items()):
        return None
    freed = sum(dict(each.demand.requests)[GPU] for each in members if each.node == place)
    missing = max(0, dict(asked.requests)[GPU] - scene_.fleet.free(place, GPU))
    if freed < missing:
        return None
    most = max(scene_.over_share.values())
    return Cost(
        sum(len(each) > 1 for each in chosen),
        max(0, sum(each.demand.gpus for each in members) - missing * ONE_GPU),
        sum(each.demand.gpus * (NOW - each.saved_at) for each in members),
        0,
        sum(each.demand.gpus * (most - scene_.over_share[each.team]) for each in members),
        sum(NOW - each.started_at for each in members),
    )


def cheapest(scene_, asked):
    ranks = []
    for fleet_node in scene_.fleet.nodes():
        place = fleet_node.name
        here = [unit for unit in units(scene_) if any(each.node == place for each in unit)]
        for chosen in chain.from_iterable(combinations(here, count) for count in range(len(here) + 1)):
            found = cost(scene_, chosen, asked, place)
            if found is not None:
                ranks.append(found.ranked(scene_.order))
    return min(ranks, default=None)


@given(scenes(), st.integers(1, 6))
def test_a_plan_costs_as_little_as_any(scene_, count):
    asked = waiting(count=count)
    found = plan([asked], scene_)
    want = cheapest(scene_, asked.demand)
    if found.moves:
        assert found.moves[0].cost.ranked(scene_.order) == want
    else:
        fits = any(scene_.fleet.fits(each.name, asked.demand) for each in scene_.fleet.nodes())
        assert [each.cause for each in found.refused] == [Cause.FITS if fits else Cause.NOT_ENOUGH_VICTIMS]
        assert fits or want is None


@given(scenes(), st.integers(1, 6), st.sets(st.sampled_from(["n0", "n1", "n2"])))
def test_keeping_away_from_pods_is_keeping_away_from_their_nodes(scene_, count, taken):
    others = Constraints(terms=(NodeTerm((requirement("host", "NotIn", *sorted(taken)),), ()),))
    told = plan([alone(count=count)], replace(scene_, pod_counts=like(*taken)))
    want = plan([waiting(count=count, constraints=others)], scene_)
    assert [(move.node, move.victims) for move in told.moves] == [(move.node, move.victims) for move in want.moves]
    assert bool(told.moves) or (Cause.FITS in causes(told).values()) == (Cause.FITS in causes(want).values())


@given(scenes(), st.lists(counts, min_size=1, max_size=5), st.sets(st.sampled_from(["n0", "n1", "n2"])))
def test_no_round_puts_two_that_keep_apart_together(scene_, sizes, taken):
    found = plan([alone(f"b{n}", size) for n, size in enumerate(sizes)], replace(scene_, pod_counts=like(*taken)))
    nodes = [move.node for move in found.moves]
    assert len(set(nodes)) == len(nodes)
    assert not taken & set(nodes)


@given(scenes(), st.integers(1, 6))
def test_no_victim_can_be_left_out(scene_, count):
    for move in plan([waiting(count=count)], scene_).moves:
        groups = [tuple(g) for g in {each.gang or each.uid: None for each in move.victims}]
        chosen = [unit for unit in units(scene_) if set(unit) <= set(move.victims)]
        assert sum(len(unit) for unit in chosen) == len(move.victims), groups
        for left_out in chosen:
            rest = [unit for unit in chosen if unit != left_out]
            assert cost(scene_, rest, move.waiting.demand, move.node) is None


@given(scenes(), st.lists(counts, min_size=1, max_size=6), st.randoms())
def test_the_same_scene_gives_the_same_round(scene_, sizes, dice):
    wants = [waiting(f"b{n}", size, since=n % 2) for n, size in enumerate(sizes)]
    mixed, victims = list(wants), list(scene_.victim_index)
    dice.shuffle(mixed)
    dice.shuffle(victims)
    assert plan(wants, scene_) == plan(mixed, replace(scene_, victim_index=VictimIndex(victims)))


@given(scenes(), st.lists(counts, min_size=1, max_size=8), st.booleans())
def test_after_a_round_everybody_it_seats_has_room_and_nobody_goes_twice(scene_, sizes, is_gang):
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
    told = [each.waiting.uid for each in (*found.moves, *found.refused)]
    assert sorted(told) == sorted(each.uid for each in wants)
    if is_gang and any(each.cause is not Cause.FITS for each in found.refused):
        assert found.moves == ()
