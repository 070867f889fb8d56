"""The row of a team or a department: its share and its usage, also of teams without pods or without a policy."""

from dataclasses import replace

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, policy, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.explain.team_rows import department_rows, ledger_row, team_row, team_rows
from webhook.core.model.amounts import UNLIMITED, DepartmentName, TeamName
from webhook.core.quota.usage import department_ledger

A = TeamName("team-a")
LEFT = department_ledger(DepartmentName("left"))


def amounts(row):
    return (row.used, row.reserved, row.preemptible, row.beyond_share, row.waiting)


def test_a_team_is_summed_up_by_its_pods():
    pods = [resident(3, node="n0"), resident(2, tier="preemptible", node="n1"), resident(1, tier="preemptible")]
    row = team_row(A, world(policy(team(guaranteed=4, limit_=9)), residents=pods))
    assert (row.guaranteed, row.limit) == (gpus(4), gpus(9))
    assert amounts(row) == (gpus(6), 0, gpus(3), gpus(2), gpus(1))


def test_preemptible_and_beyond_the_share_are_two_things_for_teams_and_departments_alike():
    tree = tree_policy(left=department("left", "top", guaranteed=8, limit_=16), guaranteed=8)
    by_choice = world(tree, residents=[resident(8, tier="preemptible", node="n0")])
    unlabeled = world(tree, residents=[resident(10, tier=None, node="n0")])
    for place, want in ((by_choice, (gpus(8), 0)), (unlabeled, (0, gpus(2)))):
        left = next(row for row in department_rows(place) if row.name == "left")
        for row in (team_row(A, place), left):
            assert (row.preemptible, row.beyond_share) == want, row.name


def test_teams_without_pods_and_teams_without_a_policy_are_listed():
    place = world(policy(team(), team("team-b")), residents=[resident(1)])
    place.set_pod(resident(2, namespace="unowned"))
    found = {each.name: (each.guaranteed, each.limit, each.used) for each in team_rows(place)}
    assert found == {
        "team-a": (gpus(20), gpus(40), gpus(1)),
        "team-b": (gpus(20), gpus(40), 0),
        "unassigned": (0, UNLIMITED, gpus(2)),
    }


def test_a_team_that_left_the_policy_is_guaranteed_nothing():
    place = world(policy(team()), residents=[resident(1)])
    place.set_policy(replace(place.policy, teams=(), hash="p2"))
    row = team_row(A, place)
    assert (row.guaranteed, row.limit, row.used) == (0, UNLIMITED, 0)


def test_a_department_is_summed_up_by_the_name_of_its_ledger():
    tree = tree_policy(left=department("left", "top", guaranteed=4, limit_=9))
    pods = [resident(3, node="n0"), resident(2, namespace="team-b", tier="preemptible")]
    row = ledger_row(LEFT, world(tree, residents=pods))
    assert (row.ledger, row.guaranteed, row.limit) == (LEFT, gpus(4), gpus(9))
    assert amounts(row) == (gpus(5), 0, gpus(2), gpus(1), gpus(2))
    assert amounts(ledger_row(LEFT, world())) == (0, 0, 0, 0, 0), "policy does not know it"


def test_pods_in_line_are_counted_for_their_team_and_for_the_departments_above_it():
    place = world(tree_policy())
    for name, namespace in (("a", "team-a"), ("b", "team-b"), ("c", "team-c")):
        place.set_waiting(waiting(name, 2, namespace=namespace))
    found = [ledger_row(name, place).queued for name in (A, LEFT, department_ledger(DepartmentName("top")))]
    assert found == [(1, gpus(2)), (2, gpus(4)), (3, gpus(6))]
