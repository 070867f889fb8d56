"""Teams and departments as rows, their bars, and who sees which."""

from tests.page.support.pages import policy_of, state_of
from webhook.page.views.teams import Bar, share_rows
from webhook.page.views.viewer import EVERYTHING, Viewer

TREE = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
departments:
  - {name: research, gpus: {guaranteed: 20, limit: 40}}
teams:
  - {name: vision, namespaces: [vision], department: research, gpus: {guaranteed: 8, limit: 16}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 4, limit: unlimited}}
"""


def by_name(rows):
    return {row.name: row for row in rows}


def test_a_team_has_its_numbers_holders_line_and_bar():
    row = by_name(share_rows(state_of().world, EVERYTHING))["vision"]
    assert (row.guaranteed, row.limit, row.borrowed, row.waiting) == ("12", "24", "4", "0")
    assert row.holders[0] == ("vision/Job/train", "12")
    assert row.bar == Bar(51, 16, 50)
    nlp = by_name(share_rows(state_of().world, EVERYTHING))["nlp"]
    assert nlp.queued == "2 (12 GPUs)"


def test_departments_come_before_their_teams():
    rows = share_rows(state_of(policy=policy_of(TREE)).world, EVERYTHING)
    assert [(row.name, row.depth, row.is_team) for row in rows[:3]] == [
        ("research", 0, False),
        ("vision", 1, True),
        ("nlp", 0, True),
    ]


def test_a_viewer_of_one_namespace_sees_its_team_and_holders_there_alone():
    [row] = share_rows(state_of(policy=policy_of(TREE)).world, Viewer("v", frozenset({"vision"})))
    assert (row.name, row.depth) == ("vision", 0)
    assert all(name.startswith("vision/") for name, _ in row.holders)
    assert share_rows(state_of().world, Viewer("x", frozenset({"elsewhere"}))) == []
