"""Alerts, runbooks and dashboard agree with each other and with the code."""

import re
from itertools import combinations

from tests.docs import pages
from tests.observe import alerting

RUNBOOKS = alerting.ROOT / "docs" / "runbooks.md"


def test_an_alert_has_a_severity_a_summary_and_a_runbook():
    anchors = pages.anchors(RUNBOOKS)
    for alert in alerting.alerts():
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert (alerting.ROOT / page, anchor) == (RUNBOOKS, alert["alert"].lower())
        assert anchor in anchors


def test_every_runbook_belongs_to_an_alert():
    assert re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), flags=re.MULTILINE) == [
        alert["alert"] for alert in alerting.alerts()
    ]


def test_every_runbook_has_diagnosis_and_remedy():
    sections = [part for part in RUNBOOKS.read_text().split("\n## ") if re.match(r"\w+\n", part)]
    assert len(sections) == len(alerting.alerts())
    for section in sections:
        assert re.findall(r"^\*\*(\w+):\*\*", section, flags=re.MULTILINE) == ["Look", "Do"], section[:40]


def test_alerts_panels_and_runbooks_name_metrics_that_exist():
    known = alerting.known_metrics()
    for alert in alerting.alerts():
        assert set() < alerting.metrics_in(alert["expr"]) <= known | alerting.API_SERVER, alert["alert"]
    for query in alerting.queries():
        assert set() < alerting.metrics_in(query.expr) <= known, query.panel
    more = alerting.known_metrics(with_histograms=True) | alerting.API_SERVER
    assert alerting.metrics_in(RUNBOOKS.read_text()) <= more


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
