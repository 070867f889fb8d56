"""The summary of a team: its share and its usage, also of teams without pods or without a policy."""

from dataclasses import replace

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, policy, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.explain.team_summary import TeamSummary, summaries, summary_of
from webhook.core.model.amount import UNLIMITED
from webhook.core.model.names import DepartmentName
from webhook.core.quota.ledger_moves import department_ledger


def test_a_team_is_summed_up_by_its_pods():
    pods = [resident(3, node="n0"), resident(2, tier="preemptible", node="n1"), resident(1, tier="preemptible")]
    place = world(policy(team(guaranteed=4, limit_=9)), residents=pods)
    want = TeamSummary("team-a", gpus(4), gpus(9), gpus(6), 0, gpus(2), gpus(3), gpus(1))
    assert summary_of("team-a", place) == want


def test_usage_inside_the_share_borrows_nothing():
    assert summary_of("team-a", world(policy(team(guaranteed=4)), residents=[resident(3)])).borrowed == 0


def test_teams_without_pods_and_teams_without_a_policy_are_listed():
    place = world(policy(team(), team("team-b")), residents=[resident(1)])
    place.set_pod(resident(2, namespace="unowned"))
    found = {each.team: (each.guaranteed, each.limit, each.used) for each in summaries(place)}
    assert found == {
        "team-a": (gpus(20), gpus(40), gpus(1)),
        "team-b": (gpus(20), gpus(40), 0),
        "unassigned": (0, UNLIMITED, gpus(2)),
    }


def test_a_team_that_left_the_policy_is_guaranteed_nothing():
    place = world(policy(team()), residents=[resident(1)])
    assert replace(place.policy, teams=()).team("team-a") is None
    place.set_policy(replace(place.policy, teams=(), hash="p2"))
    assert summary_of("team-a", place) == TeamSummary("team-a", 0, UNLIMITED, 0, 0, 0, 0, 0)


def test_a_department_is_summed_up_by_the_name_of_its_ledger():
    left = department_ledger(DepartmentName("left"))
    tree = tree_policy(left=department("left", "top", guaranteed=4, limit_=9))
    pods = [resident(3, node="n0"), resident(2, namespace="team-b", tier="preemptible")]
    want = TeamSummary(left, gpus(4), gpus(9), gpus(5), 0, gpus(1), gpus(2), gpus(2))
    assert summary_of(left, world(tree, residents=pods)) == want
    assert summary_of(left, world()) == TeamSummary(left, 0, UNLIMITED, 0, 0, 0, 0, 0)


def test_pods_in_line_are_counted_for_their_team_and_for_the_departments_above_it():
    left = department_ledger(DepartmentName("left"))
    place = world(tree_policy())
    for name, namespace in (("a", "team-a"), ("b", "team-b"), ("c", "team-c")):
        place.set_waiting(waiting(name, 2, namespace=namespace))
    found = {name: summary_of(name, place) for name in ("team-a", left, department_ledger(DepartmentName("top")))}
    assert [(each.queued, each.queued_gpus) for each in found.values()] == [(1, gpus(2)), (2, gpus(4)), (3, gpus(6))]
