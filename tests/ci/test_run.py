""".ci/run with a `make` that is a shell script: what it calls, its exit status and its last line."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

PASSED = "=== 8423 passed, 2 warnings, 1 rerun in 640.12s (0:10:40) ==="
NOT_IMPORTED = "=== 5 errors in 3.10s ==="
REST = "=== 800 passed in 900.00s (0:15:00) ==="
REST_FAILED = "=== 1 failed, 799 passed in 900.00s (0:15:00) ==="
FAILED = "=== 2 failed, 8421 passed in 640.12s (0:10:40) ==="
OPERATORS = "=== 75 passed in 200.00s (0:03:20) ==="
OPERATORS_FAILED = "=== 1 failed, 74 passed in 200.00s (0:03:20) ==="
VERSIONS = "=== 240 passed, 9 skipped in 300.00s (0:05:00) ==="
VERSIONS_FAILED = "=== 1 failed, 239 passed, 9 skipped in 300.00s (0:05:00) ==="
TESTED = "Kubernetes 1.36.5: 240 passed, 9 skipped in 300.00s, 5.2 minutes in all"
LEFT_OUT = "left out, as they are not built: the tests of lws, trainer"
MINOR_LEFT_OUT = "left out, as it is not built: Kubernetes 1.30"
ERROR = "make: *** [Makefile:45: target] Error 1"

MAKE = f"""#!{sys.executable}
import os, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
assert sys.stdin.read() == ""
status, *lines = (here / sys.argv[1]).read_text().splitlines()
print(*lines, sep="\\n")
sys.exit(int(status))
"""


@pytest.fixture
def run(tmp_path):
    """Run it in a folder of its own; each target ends with a status after some lines."""

    def run(test, operators=(0, OPERATORS), versions=(0, VERSIONS), rest=(0, REST), **environ):
        parts = {"test": test, "test-rest": rest, "test-operators": operators, "test-versions": versions}
        for target, (status, *lines) in parts.items():
            (tmp_path / "bin" / target).write_text("\n".join([str(status), *lines]))
        own = {name: value for name, value in os.environ.items() if name != "CI_MINUTES"}
        environ = {**own, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), **environ}
        command = ["bash", tmp_path / ".ci" / "run"]
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False, input="unread\n")
        calls = (tmp_path / "bin" / "calls").read_text().splitlines()
        assert sorted(path.name for path in tmp_path.iterdir()) == [".ci", "bin"]
        return done.returncode, done.stdout.splitlines(), calls

    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").write_text(MAKE)
    (tmp_path / "bin" / "make").chmod(0o755)
    return run


def test_all_passed(run):
    status, lines, calls = run((0, "lint", PASSED))
    assert status == 0
    assert lines == ["lint", PASSED, REST, OPERATORS, VERSIONS, VERSIONS, OPERATORS, REST, PASSED]
    assert calls == ["test", "test-rest", "test-operators MINUTES=50", "test-versions MINUTES=15"]


def test_what_is_left_out_is_said_before_the_closing_lines(run):
    status, lines, _ = run((0, PASSED), (0, LEFT_OUT, OPERATORS), (0, VERSIONS, MINOR_LEFT_OUT, TESTED))
    assert status == 0
    assert lines[-7:] == [LEFT_OUT, MINOR_LEFT_OUT, TESTED, VERSIONS, OPERATORS, REST, PASSED]


def test_minors_that_are_all_left_out_are_no_failure(run):
    status, lines, _ = run((0, PASSED), versions=(0, MINOR_LEFT_OUT))
    assert status == 0
    assert lines[-4:] == [MINOR_LEFT_OUT, OPERATORS, REST, PASSED]


def test_operators_that_are_all_left_out_are_no_failure(run):
    status, lines, _ = run((0, PASSED), (0, LEFT_OUT, "=== 8498 deselected in 9.00s ==="))
    assert status == 0
    assert lines[-4:] == [LEFT_OUT, VERSIONS, REST, PASSED]


@pytest.mark.parametrize(
    ("test", "operators", "want", "status"),
    [
        pytest.param((2, FAILED, ERROR), (0, OPERATORS), FAILED, 2, id="a test"),
        pytest.param((0, PASSED), (2, OPERATORS_FAILED, ERROR), OPERATORS_FAILED, 2, id="a test with an operator"),
        pytest.param((2, FAILED, ERROR), (1, OPERATORS_FAILED, ERROR), FAILED, 2, id="both"),
        pytest.param((0, PASSED), (3, "error: no space", ERROR), PASSED, 3, id="all builds of operators"),
        pytest.param((0, PASSED), (3, LEFT_OUT, OPERATORS, ERROR), OPERATORS, 3, id="some builds of operators"),
        pytest.param((2, NOT_IMPORTED, ERROR), (0, OPERATORS), NOT_IMPORTED, 2, id="an import"),
    ],
)
def test_it_fails_with_each_of_its_parts_and_ends_with_pytests_line(run, test, operators, want, status):
    ended, lines, calls = run(test, operators)
    assert (ended, lines[-1]) == (status, want)
    assert len(calls) == 4


def test_a_test_that_make_test_leaves_out_fails_it(run):
    ended, lines, _ = run((0, PASSED), rest=(2, REST_FAILED, ERROR))
    assert ended == 2
    assert lines[-5:] == ["make test-rest failed with status 2", VERSIONS, OPERATORS, PASSED, REST_FAILED]


def test_a_test_on_another_minor_fails_it(run):
    ended, lines, _ = run((0, PASSED), versions=(2, VERSIONS_FAILED, TESTED, ERROR))
    assert ended == 2
    assert lines[-5:] == ["make test-versions failed with status 2", OPERATORS, REST, PASSED, VERSIONS_FAILED]


def test_it_ends_where_lint_failed_before_a_test(run):
    status, lines, calls = run((2, "Found 1 error.", ERROR))
    assert (status, lines, calls) == (2, ["Found 1 error.", ERROR], ["test"])


@pytest.mark.parametrize(("minutes", "want"), [("30", "20"), ("5", "0")])
def test_builds_get_what_is_left_of_the_time(run, minutes, want):
    _, _, calls = run((0, PASSED), CI_MINUTES=minutes)
    assert calls[2] == f"test-operators MINUTES={want}"
