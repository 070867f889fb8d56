"""By the source of the tests: those that need operators have the mark, and each test runs in one of the commands."""

import ast
import itertools
import os
import re
import subprocess
import sys

import pytest
from _pytest.mark.expression import Expression

from tests.control_plane.fixtures import RECIPES_BY_FIXTURE
from tests.control_plane.versions import CONTROL_PLANE, FOR_REST
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

FIXTURES = {name for name, recipes in RECIPES_BY_FIXTURE.items() if not {*recipes} <= {*CONTROL_PLANE, *FOR_REST}}
PROMISED = {
    *("greedy_team", "fragmentation", "reclaim"),  # the three scenarios
    *(
        "replicas",
        "tiers",
        "queue",
        "gangs",
        "certificates",
        "guards",
        "workloads",
        "uninstall",
        "devices",
        "departments",
    ),
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def marked(mark: str) -> set[tuple[str, str]]:
    """The test functions that pytest would run with the mark: file and function."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", mark]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=inherited, capture_output=True, text=True, check=True)
    names = [line.partition("[")[0].split("::") for line in done.stdout.splitlines() if "::" in line]
    return {(file, function) for file, *_, function in names}


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
        (str(path.relative_to(ROOT)), test)
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in needing_operators(path.read_text())
    }
    assert want == marked("operators")
    assert len(want) > 30


def runs(command: Expression, given: dict[str, bool]) -> bool:
    """Whether a command runs a test that has these marks."""
    return command.evaluate(lambda name, **_: given[name])


def test_the_commands_run_every_test_once():
    """Of each combination of marks that a test can have."""
    chosen = re.findall(r"\$\(BIN\)/pytest(?: -n \$\(WORKERS\))? -m ('[^']+'|long)", (ROOT / "Makefile").read_text())
    commands = [Expression.compile(marks.strip("'")) for marks in chosen]
    assert len(commands) == 4
    marks = ("cluster", "promise", "operators", "long", "slow")
    for has in itertools.product([False, True], repeat=len(marks)):
        given = dict(zip(marks, has, strict=True))
        needs_cluster = given["operators"] or given["promise"]
        if (needs_cluster and not given["cluster"]) or (given["long"] and given["promise"]):
            continue  # no test has these
        assert sum(runs(command, given) for command in commands) == 1, given


def test_what_make_test_shows_on_the_control_plane_is_little_and_covers_each_promise():
    promises = marked("promise")
    assert len(promises) <= 60
    assert {file.removeprefix("tests/scenarios/test_").removesuffix(".py") for file, _ in promises} >= PROMISED


def test_no_fixture_is_requested_where_the_collection_cannot_see_it():
    hidden = f".{'getfixturevalue'}("
    assert [str(path) for path in (ROOT / "tests").rglob("*.py") if hidden in path.read_text()] == []
