"""What a team and a department hold is the same on every surface that shows it, charges in flight included."""

import msgspec
import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, node, pod, resident, world
from tests.core.support.waiting import waiting
from webhook.addons.page.views.teams import EVERYTHING, share_rows
from webhook.cli.status.report import report_of
from webhook.core.explain.team_rows import board_of, ledger_row
from webhook.core.model.amounts import ONE_GPU, DepartmentName, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import flight_of
from webhook.core.quota.usage import department_ledger
from webhook.core.world.listed_charges import assume_charges
from webhook.kube.ledger.team_ledger import status_of
from webhook.observe.metrics import DEPARTMENTS, TEAMS, amounts_of_departments, amounts_of_teams

A = TeamName("team-a")
LEFT = DepartmentName("left")
AMOUNTS = ("guaranteed", "used", "reserved", "preemptible", "beyond_share", "waiting")
WANT = {
    A: (0, 16, 8, 6, 16, 8),  # 2 guaranteed and 6 preemptible on nodes, 8 charged in line
    LEFT: (10, 16, 8, 6, 6, 8),
}


@pytest.fixture
def place():
    tree = tree_policy(left=department("left", "top", guaranteed=10, limit_=20))
    held = [resident(2, node="n0"), resident(6, node="n0", tier="preemptible")]
    made = world(tree, [node("n0"), node("n1")], held)
    made.set_waiting(waiting("kept", 8))
    uid = Uid(waiting("kept", 8).uid)
    assume_charges(made, [flight_of(pod(8, uid=uid, name="kept"), Charge(A, Tier.GUARANTEED, gpus(8)))])
    made.set_waiting(waiting("next", 4))
    return made


def named(rows):
    return {row["name"]: row for row in msgspec.to_builtins(rows)}


def status(place):
    report = report_of(board_of(place), [])
    found = named([*report.teams, *report.departments])
    keys = [*AMOUNTS[:4], "beyondShare", AMOUNTS[5]]
    return {name: tuple(int(found[name][key]) for key in keys) for name in WANT}


def page(place):
    rows = {row.of.name: row.of for row in share_rows(place, EVERYTHING)}
    return {name: tuple(getattr(rows[name], key) // ONE_GPU for key in AMOUNTS) for name in WANT}


def metrics(place):
    found = {}
    for table, rows in ((TEAMS, amounts_of_teams(place)), (DEPARTMENTS, amounts_of_departments(place))):
        names = [metric.partition("_gpus_")[2] for metric in table]
        found |= {row.labels[0]: dict(zip(names, row.values, strict=True)) for row in rows}
    return {name: tuple(int(found[name][key]) for key in AMOUNTS) for name in WANT}


def ledgers(place):
    found = {name: status_of(ledger_row(ledger, place), in_flight=0) for name, ledger in LEDGERS.items()}
    return {name: tuple(int(getattr(each, key)) for key in AMOUNTS) for name, each in found.items()}


LEDGERS = {A: A, LEFT: department_ledger(LEFT)}


@pytest.mark.parametrize("surface", [status, page, metrics, ledgers])
def test_every_surface_shows_the_same_amounts(place, surface):
    assert surface(place) == WANT


def test_every_surface_counts_a_charged_pod_in_line_as_charged_and_the_next_as_in_line(place):
    [team] = [each for each in report_of(board_of(place), []).teams if each.name == A]
    assert (team.queued, team.queued_gpus, team.starting, team.starting_gpus) == (1, "4", 1, "8")
    assert status_of(ledger_row(A, place), in_flight=1).queued == 1
