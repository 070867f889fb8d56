"""What docs/tasks/coexistence.md says of other products has a test each, or is marked as read only, with its source."""

import re

import pytest

from tests.docs import pages
from tests.docs.test_comparison import collected

PAGE = pages.ROOT / "docs" / "tasks" / "coexistence.md"
HEAD = "| what | how it works together | shown by |"
TEST = re.compile(r"\[`([^`]+)`\]\((?:\.\./)+(tests/[^)]+)\)")
READ = re.compile(r"read only: \[[^\]]+\]\(https://[^)]+\)(?:, \[[^\]]+\]\(https://[^)]+\))*")


def claims(text):
    """The last cells of all tables with this head."""
    found = re.findall(rf"^{re.escape(HEAD)}\n\|---.*\n((?:\|.*\|\n)+)", text, flags=re.MULTILINE)
    return [line.rsplit("|", 2)[1].strip() for table in found for line in table.splitlines()]


CLAIMS = claims(PAGE.read_text())


def problem(cell):
    """What is wrong with a cell: each test of it must exist, and a cell without one must name what was read."""
    tests = TEST.findall(cell)
    missing = [name for name, path in tests if not _exists(name, path)]
    if missing:
        return f"no such test: {missing}"
    return "" if tests or READ.fullmatch(cell) else f"neither a test nor a source: {cell}"


def _exists(name, path):
    file = pages.ROOT / path
    return file.is_file() and (file.name == name or (file.suffix == ".py" and name in collected(path)))


@pytest.mark.parametrize("cell", CLAIMS)
def test_each_line_has_a_test_or_is_marked_as_read_only(cell):
    assert problem(cell) == ""


def test_every_product_has_lines():
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    names = {section.splitlines()[0] for section in sections if claims(section)}
    assert names >= {"Kueue", "Volcano", "HAMi", "KAI-Scheduler", "YuniKorn", "ResourceQuota", "Descheduler"}


@pytest.mark.parametrize(
    ("cell", "want"),
    [
        ("it works", "neither a test nor a source"),
        ("[`test_x`](../tests/docs/test_coexistence.py)", "no such test"),
        ("[`test_every_product_has_lines`](../tests/docs/test_coexistence.py)", ""),
        ("read only: its documentation", "neither a test nor a source"),
        ("read only: [its code](https://example.org/code)", ""),
    ],
)
def test_a_line_without_a_test_or_a_source_is_found(cell, want):
    assert problem(cell).startswith(want)
    assert bool(problem(cell)) is bool(want)
