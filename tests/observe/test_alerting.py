"""Alerts, runbooks and dashboard agree with each other and with the code."""

import re
from itertools import combinations

from tests.docs import pages
from tests.observe import alerting

RUNBOOKS = alerting.ROOT / "docs" / "tasks" / "runbooks.md"


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
    board = alerting.dashboard()
    rows = [panel for panel in board["panels"] if panel["type"] == "row"]
    everything = [*rows, *alerting.panels(board)]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for placed in (board["panels"], *(row["panels"] for row in rows)):
        for one, other in combinations((panel["gridPos"] for panel in placed), 2):
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            assert beside or above, (one, other)


def test_one_row_is_open_and_few_expressions_are_evaluated_until_another_is():
    placed = alerting.dashboard()["panels"]
    rows = [panel for panel in placed if panel["type"] == "row"]
    assert [row["title"] for row in rows if not row["collapsed"]] == ["Read this first"]
    assert all(row["panels"] for row in rows[1:])
    open_panels = [panel for panel in placed if panel["type"] != "row"]
    assert sum(len(panel["targets"]) for panel in open_panels) <= 12
    assert "fairgate_webhooks_missing" in {*map(str.strip, re.findall(r"\w+", open_panels[0]["targets"][0]["expr"]))}


def test_what_is_read_first_has_thresholds_and_leads_to_its_panel():
    board = alerting.dashboard()
    by_id = {panel["id"]: panel for panel in alerting.panels(board)}
    for panel in (each for each in board["panels"] if each["type"] == "stat"):
        assert len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1, panel["title"]
        [link] = panel["links"]
        target = by_id[int(re.search(r"viewPanel=(\d+)", link["url"])[1])]
        assert link["title"] == target["title"]


def test_an_axis_has_one_unit():
    """Seconds, bytes and counts of one panel: those that are not of its unit have an axis at the right."""
    kinds = {"seconds": "s", "bytes": "bytes"}
    for panel in alerting.panels(alerting.dashboard()):
        if panel["type"] != "timeseries":
            continue
        unit = panel["fieldConfig"]["defaults"].get("unit")
        own = {each["matcher"]["options"]: each["properties"][0]["value"] for each in panel["fieldConfig"]["overrides"]}
        units = {}
        for target in panel["targets"]:
            found = re.search(r"\b(?:fairgate|process)_\w*?_(seconds|bytes)(?:_bucket)?\b(?!_total)", target["expr"])
            if found and "_gpu_" not in found[0]:
                units[target["refId"]] = kinds[found[1]]
        for ref, want in units.items():
            assert own.get(ref, unit) == want, (panel["title"], ref)
