"""What docs/comparison.md says that Fairgate does is shown by a test each."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs import pages

PAGE = pages.ROOT / "docs" / "comparison.md"
CLAIM = re.compile(r"yes\b|part\b|\[")
"""How a cell begins that says more than "no", a number, or how something is done."""

_SHOWN = re.compile(r"\[[^\]]+\]\[([\w-]+)\]")
_SOURCE = re.compile(r'^\[([\w-]+)\]: (?:\.\./)+(\S+) "([^"]+)"$', re.MULTILINE)


def claims(page: Path) -> dict[str, str]:
    """Return the column of Fairgate by row."""
    (rows,) = [
        found
        for found in re.findall(r"(?:^\|.*\|\n)+", page.read_text(), re.MULTILINE)
        if found.startswith("| | Fairgate |")
    ]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows.splitlines()]
    assert cells[0][1] == "Fairgate"
    return {row[0]: row[1] for row in cells[2:]}


def sources(page: Path) -> dict[str, tuple[str, str]]:
    """Return the file and the test of each link definition by its label."""
    return {label: (file, test) for label, file, test in _SOURCE.findall(page.read_text())}


@cache
def collected(file: str) -> frozenset[str]:
    """Return the tests that pytest would collect of a file, those of classes as `Class::test`."""
    tree = ast.parse((pages.ROOT / file).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    scopes = [("", tree.body), *((f"{node.name}::", node.body) for node in classes)]
    return frozenset(
        prefix + node.name
        for prefix, body in scopes
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("row", [row for row, cell in claims(PAGE).items() if CLAIM.match(cell)])
def test_a_claim_has_a_test(row):
    cell = claims(PAGE)[row]
    label = _SHOWN.fullmatch(cell)
    assert label, f"{row}: {cell} names no test"
    file, test = sources(PAGE)[label[1]]
    assert test in collected(file), f"{row}: {file} has no test {test}"


def test_every_test_named_is_named_by_a_row():
    assert {found[1] for cell in claims(PAGE).values() if (found := _SHOWN.fullmatch(cell))} == set(sources(PAGE))


def test_a_claim_without_a_test_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('| | Fairgate |\n|---|---|\n| a | yes |\n| b | [yes][b] |\n| c | no |\n\n[b]: ../x.py "test_b"\n')
    assert [row for row, cell in claims(page).items() if CLAIM.match(cell) and not _SHOWN.fullmatch(cell)] == ["a"]
    assert sources(page) == {"b": ("x.py", "test_b")}


def test_tests_in_classes_and_async_ones_are_collected_and_helpers_are_not():
    assert "TestModels::test_a_pod_that_insists_on_the_model_is_refused" in collected(
        "tests/core/admission/test_placement_options.py"
    )
    assert "test_a_team_gets_its_whole_share_back_and_no_more" in collected("tests/scenarios/test_department_limits.py")
    assert "collected" not in collected("tests/docs/test_comparison.py")
