"""All members of a gang on the present world: they start together, or none of them does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, node, policy, pool, resident, team, world
from tests.core.support.waiting import member, waiting
from tests.examples import examples
from webhook.core.line.entries import Attempt, Fits, Never, NoRoom, OverLimit, Way, entry_of
from webhook.core.line.judged_gang import judge_gang
from webhook.core.line.line import TEAM, USER, queued_pod
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import Mode, OnLimit, OnNoRoom, PlacementRules
from webhook.core.starting.starts import AssumedStarts

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def place_for(*pods, nodes=2, residents=(), **shares):
    made = [node(f"n{number}") for number in range(nodes)]
    teams = (team(**{**LIMITED, **shares}), team("team-b", **LIMITED))
    place = world(policy(*teams), nodes=made, residents=list(residents))
    for pod in pods:
        place.set_waiting(pod)
    return place


def members(count, size=4, **more):
    return [member(f"m{number}", "g", size, created=number, **more) for number in range(count)]


def judged(place, *, way=Way.IN_TURN):
    pods = [queued_pod(pod, place)._replace(gang=pod.pod.gang.id) for pod in place.waiting.all()]
    return judge_gang(entry_of(pods), place, Attempt(way))


@pytest.mark.parametrize("group", [False, True], ids=["mode off", "a PodGroup"])
def test_members_that_are_bound_to_no_node_take_their_room_from_each_other(group):
    found = members(4)
    gangs = [each.pod.gang._replace(is_pod_group=group) for each in found]
    pods = [replace(each, pod=each.pod._replace(gang=gang)) for each, gang in zip(found, gangs, strict=True)]
    place = place_for(*pods, residents=[resident(3, uid="holder", node="n0", namespace="team-b")])
    place.set_policy(replace(place.policy, placement=PlacementRules(Mode.AUTO if group else Mode.OFF)))
    assert {type(each.verdict) for each in judged(place)} == {NoRoom}, "three fit beside the holder"
    place.remove_pod("holder")
    found = judged(place)
    assert {each.verdict for each in found} == {Fits()}
    assert {each.decision.node_choice.nodes for each in found} == {()}
    assert sorted(each.flight.node for each in found) == ["n0", "n0", "n1", "n1"]


def test_all_fit_and_the_world_is_as_before():
    place = place_for(*members(4))
    calls = []
    place.on_usage_changed = lambda: calls.append(True)
    assert {each.verdict for each in judged(place)} == {Fits()}
    assert place.usage("team-a").total == 0
    assert place.fleet.free("n0", "nvidia.com/gpu") == 10
    assert not calls, "or the leader would wake itself without end"


FULL = [resident(10, node="n2", namespace="team-b")]


def test_one_that_the_nodes_never_hold_never_starts_and_keeps_no_room():
    found = judged(place_for(*members(5)))
    assert {each.verdict for each in found} == {Never()}
    want = "gang g has 5 pods, and the nodes that they may use hold 4 of them when empty: it can never start whole"
    assert found[0].reason.text == f"{want}; make it smaller"
    growing = pool("grows", is_autoscaled=True)
    place = world(policy(team(**LIMITED), pools=(growing,)), nodes=[node("n0"), node("n1")])
    for each in members(5):
        place.set_waiting(each)
    assert Never() not in {each.verdict for each in judged(place)}


def test_one_that_finds_no_room_keeps_all_of_them():
    place = place_for(*members(5), residents=FULL, nodes=3)
    found = judged(place)
    assert {each.verdict for each in found} == {NoRoom()}
    assert [each.waiting.pod.name for each in found] == [f"m{number}" for number in range(5)]
    assert found[0].reason.text.startswith("gang g starts whole, with 5 pods; for m4 beside the others: ")
    assert place.usage("team-a").total == 0


@pytest.mark.parametrize(
    ("shares", "want", "text"),
    [
        (
            {"limit_": 18},
            OverLimit((TEAM, "team-a")),
            "gang g needs 16 GPUs together; team team-a holds 4 of 18;",
        ),
        ({"per_user": gpus(17)}, OverLimit((USER, "team-a", "alice")), "user alice in team team-a holds 4 of 17"),
        ({"limit_": 15}, Never(), "gang g needs 16 GPUs together, and the limit of team team-a is 15"),
    ],
    ids=["team", "user", "even alone"],
)
def test_the_sum_is_compared_with_the_limits(shares, want, text):
    held = [resident(4, node="n1", user="alice")]
    place = place_for(*members(4, user="alice"), nodes=3, residents=held, **{"guaranteed": 0, **shares})
    found = judged(place)
    assert {each.verdict for each in found} == {want}
    assert all(text in each.reason.text for each in found)


def test_a_gang_waits_for_room_even_where_single_pods_wait_in_kube_scheduler():
    shares = {"on_no_room": OnNoRoom.WAIT, "guaranteed": 0}
    place = place_for(*members(5), residents=FULL, nodes=3, **shares)
    assert {type(each.verdict) for each in judged(place)} == {NoRoom}


def test_the_room_of_one_borrower_is_taken_back_for_one_member_only():
    held = [resident(5, node="n0", namespace="team-b", tier="preemptible"), resident(8, node="n1", namespace="team-b")]
    held.append(resident(5, node="n0", namespace="team-b"))
    assert {each.verdict for each in judged(place_for(*members(1, 5), residents=held))} == {Fits()}
    assert {each.verdict for each in judged(place_for(*members(2, 5), residents=held))} == {NoRoom()}


def test_nodes_for_all_members_are_kept_for_a_gang_that_borrows():
    held = [resident(8, node=f"n{number}", namespace="team-b") for number in range(2)]
    place = place_for(*members(2, 8), residents=held, guaranteed=0)
    assert {each.verdict for each in judged(place)} == {NoRoom(frozenset({"n0", "n1"}))}


def test_as_back_fill_all_members_borrow():
    found = judged(place_for(*members(2)), way=Way.BACKFILL)
    assert {each.decision.charge.tier for each in found} == {Tier.PREEMPTIBLE}


@examples()
@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5), st.sampled_from(["team-a", "team-b"])), max_size=6),
    singles=st.lists(st.integers(1, 10), max_size=6),
    limit=st.integers(4, 40),
)
def test_no_pass_starts_a_part_of_a_gang_or_passes_a_limit(sizes, singles, limit):
    place = place_for(guaranteed=limit // 2, limit_=limit)
    want = {}
    for number, (count, size, name) in enumerate(sizes):
        want[f"{name}/g{number}"] = count
        for each in range(count):
            made = member(f"g{number}-{each}", f"g{number}", size, size=count, namespace=name, created=number)
            place.set_waiting(made)
    for number, size in enumerate(singles):
        place.set_waiting(waiting(f"s{number}", size, created=number))
    started = [turn.gang for turn in AssumedStarts(place).due(now=100, count=100) if turn.gang is not None]
    assert {gang: started.count(gang) for gang in started} == {gang: want[gang] for gang in started}
    assert place.usage("team-a").total <= gpus(limit)
    assert all(place.fleet.free(f"n{number}", "nvidia.com/gpu") >= 0 for number in range(2))


class TestOwedByBorrowers:
    """A gang inside its team's share that only borrowers keep out, and so reclaim makes room for it."""

    @staticmethod
    def place(*pods):
        """`left` has 4 GPUs, all of them for team-b by its share, 2 for each user; team-a borrows."""
        tree = tree_policy(left=department("left", "top", guaranteed=4, limit_=4), guaranteed=4)
        tree = replace(tree, teams=tuple([replace(each, per_user=gpus(2)) for each in tree.teams]))
        made = world(tree, [node("n0"), node("n1")], [resident(4, tier="preemptible", node="n0")])
        for pod in pods:
            made.set_waiting(pod)
        return made

    @staticmethod
    def gang(*counts, **more):
        return [member(f"m{number}", "g", count, namespace="team-b", **more) for number, count in enumerate(counts)]

    def test_it_says_so_with_its_sum_and_the_number_of_its_pods(self):
        found = judged(self.place(*self.gang(1, 2)))
        assert [each.gang_whole for each in found] == [2, 2]
        assert isinstance(found[0].verdict, OverLimit)
        assert found[0].reason.text == (
            "gang g needs 3 GPUs together; department left holds 4 of 4, 4 of them borrowed; "
            "it is inside team team-b's guaranteed share, so 3 GPUs can be reclaimed"
        )

    @pytest.mark.parametrize(
        ("pods", "more"),
        [
            pytest.param((3, 2), {}, id="beyond its share together"),
            pytest.param((1, 2), {"tier_label": "preemptible"}, id="borrows by choice"),
            pytest.param((1, 2), {"user": "bob"}, id="a limit of its user is in the way, too"),
        ],
    )
    def test_no_room_is_made_for(self, pods, more):
        assert {each.gang_whole for each in judged(self.place(*self.gang(*pods, **more)))} == {0}

    def test_not_for_one_with_pods_that_come_later(self):
        first, later = self.gang(1, 2)
        place = self.place(first)
        place.waiting.expected[later.uid] = later
        pods = [queued_pod(pod, place)._replace(gang=pod.pod.gang.id) for pod in (first, later)]
        found = judge_gang(entry_of(pods), place)
        assert {each.gang_whole for each in found} == {0}


def test_nodes_kept_for_a_gang_that_borrows_are_open_to_pods_inside_their_share():
    shares = team(guaranteed=0, **LIMITED), team("team-b", guaranteed=4, **LIMITED), team("team-c", **LIMITED)
    held = [resident(1, node=f"n{n}", namespace="team-c") for n in range(2)]
    place = world(policy(*shares), [node("n0"), node("n1")], held)
    for number in range(2):
        place.set_waiting(member(f"gang-{number}", "g", 10, size=2, created=1))
    for number in range(6):
        place.set_waiting(waiting(f"b-{number}", 1, namespace="team-b", created=2 + number))
    turns = AssumedStarts(place).due(now=100, count=9)
    assert [turn.waiting.pod.name for turn in turns] == ["b-0", "b-1", "b-2", "b-3"], "the others would borrow"


def test_a_tentative_reservation_keeps_no_gang_in_line():
    place = place_for(*members(4, size=5))
    place.tentative.reserve(place.fleet, "n0", waiting("m", 5, namespace="team-b").pod, now=0)
    assert {each.verdict for each in judged(place)} == {Fits()}
