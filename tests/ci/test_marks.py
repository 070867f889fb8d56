"""By the source of the tests: those that need operators have the mark, and each test runs in one of the commands."""

import ast
import os
import subprocess
import sys

import pytest

from tests.control_plane.fixtures import RECIPES_BY_FIXTURE
from tests.control_plane.versions import FOR_TEST
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

FIXTURES = {name for name, recipes in RECIPES_BY_FIXTURE.items() if not {*recipes} <= {*FOR_TEST}}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def marked() -> set[str]:
    """The test functions that pytest would run with the mark, as `file::function`."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "operators"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=inherited, capture_output=True, text=True, check=True)
    return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}


def used(nodes: list[ast.expr]) -> set[str]:
    """The fixtures that marks name: `usefixtures("a", "b")`, alone or in a list."""
    calls = [call for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "usefixtures"]
    return {text.value for call in named for text in call.args if isinstance(text, ast.Constant)}


def needing_operators(source: str) -> set[str]:
    """The test functions of a module that request a fixture of an operator, themselves or by fixtures of the module."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    everywhere = used([node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"])
    requested = {
        function.name: {argument.arg for argument in function.args.args} | used(function.decorator_list) | everywhere
        for function in functions
    }
    for _ in functions:  # a fixture may request another one
        for names in requested.values():
            names.update(*[requested[name] for name in names if name in requested])
    return {name for name, names in requested.items() if name.startswith("test_") and names & FIXTURES}


def test_each_test_that_requests_an_operator_has_the_mark_and_no_other():
    want = {
        f"{path.relative_to(ROOT)}::{test}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in needing_operators(path.read_text())
    }
    assert want == marked()
    assert len(want) > 30


def test_the_commands_run_every_test_once():
    makefile = (ROOT / "Makefile").read_text()
    for marks in ("-m 'not long and not operators'", "-m 'operators and not long'", "-m long"):
        assert makefile.count(f"$(BIN)/pytest -n $(WORKERS) {marks}") + makefile.count(f"$(BIN)/pytest {marks}") == 1


def test_no_fixture_is_requested_where_the_collection_cannot_see_it():
    hidden = f".{'getfixturevalue'}("
    assert [str(path) for path in (ROOT / "tests").rglob("*.py") if hidden in path.read_text()] == []
