"""The alerts and the dashboard as data, for the tests that compare them with docs, code and Prometheus."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.docs import metrics_page

ROOT = Path(__file__).parents[2]
FILES = ROOT / "charts" / "fairgate" / "files"
ALERTS = FILES / "alerts.yaml"
DASHBOARD = FILES / "dashboard.json"


class Query(NamedTuple):
    """One expression of the dashboard, and where it is."""

    panel: str
    expr: str


def alerts() -> list[dict]:
    """The alerting rules."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict:
    """The dashboard as Grafana imports it."""
    return json.loads(DASHBOARD.read_text())


def panels(board: dict) -> Iterator[dict]:
    """All panels that show something, also those inside of collapsed rows."""
    for panel in board["panels"]:
        yield from panel.get("panels", ())
        if panel["type"] != "row":
            yield panel


def queries() -> list[Query]:
    """Every expression, with Grafana's variables filled in as Grafana does."""
    board = dashboard()
    return [Query(panel["title"], _filled(target["expr"])) for panel in panels(board) for target in panel["targets"]]


API_SERVER = {"apiserver_admission_webhook_rejection_count", "apiserver_admission_webhook_fail_open_count"}
"""Metrics of kube-apiserver; a test on a real one checks that they exist (tests/charts/test_walk.py)."""


def metrics_in(expr: str) -> set[str]:
    """The names of metrics in an expression."""
    return set(re.findall(r"\b(?:fairgate|process|apiserver)_\w+", expr))


def known_metrics(*, with_histograms: bool = False) -> set[str]:
    """The series that the code has, by the names that expressions use; `with_histograms` those of histograms, too."""
    rows = [(row.name, row.type) for row in metrics_page.metrics()]
    histograms = {f"{name}_{part}" for name, kind in rows if kind == "histogram" for part in ("bucket", "sum", "count")}
    return {name for name, kind in rows if with_histograms or kind != "histogram"} | histograms


def _filled(expr: str) -> str:
    return (
        expr.replace("$__rate_interval", "1m")
        .replace("$__range", "5m")
        .replace("$team", ".+")
        .replace("$model", ".*")
        .replace("$cluster", "")
    )
