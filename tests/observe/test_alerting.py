"""Alerts, runbooks and dashboard agree with each other and with the code."""

import re
from itertools import combinations

import pytest

from tests.docs import pages
from tests.observe import alerting

RUNBOOKS = alerting.ROOT / "docs" / "runbooks.md"
every_alert = pytest.mark.parametrize("alert", alerting.alerts(), ids=lambda alert: alert["alert"])
every_query = pytest.mark.parametrize("query", alerting.queries(), ids=lambda query: query.panel)


@every_alert
def test_an_alert_has_a_severity_a_summary_and_a_runbook(alert):
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert (alerting.ROOT / page, anchor) == (RUNBOOKS, alert["alert"].lower())
    assert anchor in pages.anchors(RUNBOOKS)


def test_every_runbook_belongs_to_an_alert():
    assert re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), flags=re.MULTILINE) == [
        alert["alert"] for alert in alerting.alerts()
    ]


def test_every_runbook_has_diagnosis_and_remedy():
    sections = [part for part in RUNBOOKS.read_text().split("\n## ") if re.match(r"\w+\n", part)]
    assert len(sections) == len(alerting.alerts())
    for section in sections:
        assert re.findall(r"^\*\*(\w+):\*\*", section, flags=re.MULTILINE) == ["Look", "Do"], section[:40]


@every_alert
def test_an_alert_uses_metrics_that_exist(alert):
    named = alerting.metrics_in(alert["expr"])
    assert named
    assert named <= alerting.known_metrics() | alerting.API_SERVER


@every_query
def test_a_panel_uses_metrics_that_exist(query):
    named = alerting.metrics_in(query.expr)
    assert named
    assert named <= alerting.known_metrics()


def test_the_runbooks_name_metrics_that_exist():
    known = alerting.known_metrics(with_histograms=True) | alerting.API_SERVER
    assert alerting.metrics_in(RUNBOOKS.read_text()) <= known


def test_the_data_source_is_chosen_when_the_dashboard_is_imported():
    board = alerting.dashboard()
    assert "datasource" in {variable["name"] for variable in board["templating"]["list"]}
    for panel in alerting.panels(board):
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_every_expression_is_of_one_cluster():
    for panel in alerting.panels(alerting.dashboard()):
        for target in panel["targets"]:
            wanted = len(re.findall(r"\b(?:fairgate|process)_\w+", target["expr"]))
            assert target["expr"].count('{cluster=~"$cluster"') == wanted, target["expr"]


def test_every_variable_of_the_dashboard_is_set():
    assert not [query for query in alerting.queries() if "$" in query.expr]


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    placed = alerting.dashboard()["panels"]
    assert len({panel["id"] for panel in placed}) == len(placed)
    for one, other in combinations((panel["gridPos"] for panel in placed), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
