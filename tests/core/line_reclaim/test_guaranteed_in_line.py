"""The pods in line for which reclaim makes room under limits, as many as their teams' shares have room for."""

from dataclasses import replace

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, node, resident, world
from tests.core.support.waiting import member, waiting
from webhook.core.model.amounts import GpuModel, TeamName
from webhook.core.model.policy import Share
from webhook.core.starting.line_reclaim import MOST, guaranteed_in_line


def place(*line, held=(), nodes=None, teams=(), **more):
    """`left` has 8 GPUs; team-a borrows them all, and team-b is guaranteed 4 of them."""
    tree = tree_policy(left=department("left", "top", guaranteed=8, limit_=8), guaranteed=4, **more)
    shares = {"team-a": 0, "team-b": 4, "team-c": 0, "team-d": 4}
    found = [replace(each, gpus=replace(each.gpus, guaranteed=gpus(shares[each.name]))) for each in tree.teams]
    tree = replace(tree, teams=tuple([changed(each) for each in found for changed in (teams or [lambda e: e])]))
    made = world(tree, nodes, [resident(8, tier="preemptible", node="n0"), *held])
    for each in line:
        made.set_waiting(each)
    return made


def in_line(name="w", count=1, **more):
    return waiting(name, count, namespace=more.pop("namespace", "team-b"), **more)


def names(made, **more):
    return [each.waiting.name for group in guaranteed_in_line(made, **more) for each in group]


def test_pods_are_taken_in_the_order_of_the_line_until_the_share_is_used():
    line = [
        in_line(name, 2, created=created, priority=priority)
        for name, created, priority in [("old", 1, 0), ("new", 3, 0), ("middle", 2, 0), ("first", 9, 5)]
    ]
    assert sorted(names(place(*line))) == ["first", "old"]
    used = resident(3, namespace="team-b")
    assert names(place(in_line("large", 2, created=1), in_line("small", 1, created=2), held=[used])) == ["small"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(in_line(count=5), id="more than the share"),
        pytest.param(in_line(tier_label="preemptible"), id="borrows by choice"),
        pytest.param(in_line(foreign_gates=("other",)), id="another controller holds it"),
        pytest.param(in_line(is_terminating=True), id="is being deleted"),
        pytest.param(in_line(problem="unreadable"), id="cannot be read"),
        pytest.param(in_line(namespace="team-a"), id="its team has no share"),
        pytest.param(in_line(namespace="team-d"), id="no pod borrows under a limit of its team"),
        pytest.param(in_line(pool="gone"), id="its pool is gone"),
        pytest.param(member("m", namespace="team-b"), id="a member of a gang that is not whole"),
    ],
)
def test_no_room_is_made_for(line):
    assert names(place(line)) == []


def test_a_team_that_rests_gets_nothing():
    assert names(place(in_line()), paused_teams={TeamName("team-b")}) == []


def test_a_limit_per_user_counts_the_pods_taken_before():
    line = [
        in_line("b1", user="bob", created=1),
        in_line("b2", user="bob", created=2),
        in_line("a", user="al", created=3),
    ]
    limited = [lambda each: replace(each, per_user=gpus(1))]
    assert names(place(*line, teams=limited)) == ["b1", "a"]


def test_a_late_member_of_a_started_gang_starts_alone():
    late = member("late", namespace="team-b")
    started = resident(1, namespace="team-b", gang=late.pod.gang.id, node="n0")
    assert names(place(late, held=[started])) == ["late"]


def test_the_slots_are_those_of_its_pools_full_or_not():
    racks = [node("n0", labels={"rack": "a"}), node("n1", labels={"rack": "b"})]
    made = place(in_line(), nodes=racks)
    ((found,),) = guaranteed_in_line(made)
    assert found.slots == made.fleet.bit("n0") | made.fleet.bit("n1")
    assert found.levels == ("team team-b", "department left")
    assert (found.waiting.team, found.waiting.demand.gpus) == ("team-b", gpus(1))


def test_a_long_line_costs_no_more_than_a_bounded_number_of_judgments():
    small = [in_line(f"w{number}", created=number) for number in range(MOST + 20)]
    tree = tree_policy(left=department("left", "top", guaranteed=200, limit_=200), guaranteed=100)
    made = world(tree, residents=[resident(200, tier="preemptible", node="n0", namespace="team-a")])
    for each in small:
        made.set_waiting(each)
    assert len(names(made)) == MOST


class TestMoreThanARound:
    """A tenant decides how many pods it has in line, and whether they start once they have room."""

    def place(self, many, *few):
        tree = tree_policy(left=department("left", "top", guaranteed=200, limit_=200), guaranteed=100)
        shared = [
            each if each.name != "team-d" else replace(each, departments=tree.teams[0].departments)
            for each in tree.teams
        ]
        made = world(replace(tree, teams=tuple(shared)), residents=[resident(200, tier="preemptible", node="n0")])
        for each in [*many, *few]:
            made.set_waiting(each)
        return made

    def test_the_pods_of_one_team_leave_room_for_the_first_of_another(self):
        many = [in_line(f"w{number}", created=number) for number in range(MOST + 20)]
        found = names(self.place(many, in_line("late", namespace="team-d", created=1000)))
        assert len(found) == MOST
        assert found[-1] == "late"

    def test_pods_that_are_paused_take_the_place_of_none(self):
        many = [in_line(f"w{number}", created=number) for number in range(MOST)]
        found = names(self.place(many, in_line("late", created=1000)), paused={each.uid for each in many})
        assert found == ["late"]


class TestGangs:
    """A gang that the leader found whole gets room for all of its pods or for none."""

    @staticmethod
    def gang(*names, count=1, whole=None, created=0, **more):
        more = {"namespace": "team-b", "gang_whole": len(names) if whole is None else whole} | more
        return [member(name, "g", count, created=created + number, **more) for number, name in enumerate(names)]

    @staticmethod
    def groups(made):
        return [[each.waiting.name for each in group] for group in guaranteed_in_line(made)]

    def test_one_that_is_whole_is_one_group_in_the_turn_of_its_oldest_pod(self):
        line = [in_line("before", created=1), *self.gang("m0", "m1", created=2), in_line("after", created=9)]
        assert self.groups(place(*line)) == [["before"], ["m0", "m1"], ["after"]]

    def test_the_share_has_room_for_all_of_it_or_it_is_passed_over(self):
        assert self.groups(place(*self.gang("m0", "m1", "m2", count=2), in_line("small", created=9))) == [["small"]]

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param({"whole": 3}, id="a pod of it was deleted since"),
            pytest.param({"is_terminating": True}, id="a pod of it is being deleted"),
            pytest.param({"foreign_gates": ("other",)}, id="another controller holds it"),
            pytest.param({"tier_label": "preemptible"}, id="borrows by choice"),
            pytest.param({"pool": "gone"}, id="its pool is gone"),
        ],
    )
    def test_one_that_may_not_start_gets_nothing(self, changed):
        assert self.groups(place(*self.gang("m0", "m1", **changed))) == []

    def test_where_one_pod_may_not_start_what_the_others_took_is_given_back(self):
        barred = self.gang("m0", count=2, whole=2) + self.gang("m1", count=2, whole=2, created=1, pool="gone")
        assert self.groups(place(*barred, in_line("all", 4, created=9))) == [["all"]]

    def test_a_limit_per_user_counts_all_pods_of_it(self):
        limited = [lambda each: replace(each, per_user=gpus(1))]
        assert self.groups(place(*self.gang("m0", "m1", user="bob"), teams=limited)) == []

    def test_pods_beyond_those_it_starts_with_come_later(self):
        later = self.gang("m2", whole=0, created=5)
        assert self.groups(place(*self.gang("m0", "m1"), *later)) == [["m0", "m1"]]

    def test_one_is_planned_for_alone_if_it_is_larger_than_a_round(self):
        large = self.gang(*[f"m{number}" for number in range(MOST + 6)])
        tree = tree_policy(left=department("left", "top", guaranteed=200, limit_=200), guaranteed=100)
        made = world(tree, residents=[resident(200, tier="preemptible", node="n0", namespace="team-a")])
        for each in [*large, in_line("after", created=MOST * 2)]:
            made.set_waiting(each)
        assert [len(group) for group in guaranteed_in_line(made)] == [MOST + 6]

    def test_where_the_share_of_a_model_decides_nothing_is_made_for_it(self):
        """Each pod changes what is left for the next one."""
        models = [lambda each: replace(each, models={GpuModel("m"): Share(gpus(4), gpus(4))})]
        assert self.groups(place(*self.gang("m0", "m1"), teams=models)) == []
