"""`CHAOS_DAY` names the failures to run, as `make chaos-day` does: each takes a minute. Their table is printed last."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest

ROW = "row of the day of failures"
HEAD = (
    "failure",
    "lasts",
    "first GPU pod after it",
    "longest time without one",
    "pods without GPUs that waited or were refused",
    "sums agree after",
    "reclaim works after",
)

collect_ignore = [] if "CHAOS_DAY" in os.environ else ["test_day.py"]


@pytest.fixture
def note_row(record_property: Callable[[str, object], None]) -> Callable[[list[str]], None]:
    """Add a row of cells to the table."""
    return functools.partial(record_property, ROW)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    passed = terminalreporter.stats.get("passed", [])
    rows = [cells for report in passed for name, cells in report.user_properties if name == ROW]
    for line in (HEAD, ["---"] * len(HEAD), *rows) if rows else ():
        terminalreporter.write_line(f"| {' | '.join(line)} |")
