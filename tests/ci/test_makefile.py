"""`make test` and `make test-operators` with shell scripts as programs: what runs, in which order, and the status."""

import os
import subprocess

import pytest

from tests.docs.pages import ROOT

PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >> "$(dirname "$0")/calls"
case "$*" in
  *control_plane.build*) exit "$BUILD";;
  "check .") exit "$LINT";;
  *operators*) exit "$TESTS";;
esac
"""
BUILD = "python -m tests.control_plane.build"


@pytest.fixture
def make(tmp_path):
    """Run a target; the build and pytest end with the given statuses."""

    def make(*arguments, build=0, tests=0, lint=0):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        command = ["make", "--directory", ROOT, f"VENV={tmp_path}", "WORKERS=3", *arguments]
        environ |= {"BUILD": str(build), "TESTS": str(tests), "LINT": str(lint)}
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, (tmp_path / "bin" / "calls").read_text().splitlines()

    (tmp_path / "bin").mkdir()
    for name in ("python", "pytest", "ruff", "mypy", "lint-imports"):
        (tmp_path / "bin" / name).write_text(PROGRAM)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / ".installed").touch()  # newer than what it is made from
    return make


PROMISES = "pytest -n 3 -m not long and (promise or not cluster) --limit-minutes 25 --limit-reruns 2"
REST = "pytest -n 3 -m cluster and not (promise or long or operators) --limit-minutes 45 --limit-reruns 2"


def test_the_control_plane_is_built_beside_lint_and_before_the_tests(make):
    status, calls = make("test")
    assert status == 0
    assert calls[-1] == PROMISES
    assert BUILD in calls
    assert any(call.startswith("ruff check") for call in calls)


def test_where_lint_fails_no_test_runs(make):
    status, calls = make("test", lint=1)
    assert status != 0
    assert not any(call.startswith("pytest") for call in calls)


def test_everything_is_both_commands_one_after_the_other(make):
    status, calls = make("test-all")
    assert status == 0
    assert [call for call in calls if call.startswith(("pytest", BUILD))] == [BUILD, PROMISES, f"{BUILD} --rest", REST]


def test_the_tests_run_where_the_control_plane_cannot_be_built(make):
    status, calls = make("test", build=1)
    assert status == 0
    assert calls[-1].startswith("pytest ")


@pytest.mark.parametrize(
    ("arguments", "build", "want"),
    [
        pytest.param((), " --operators", "", id="without a bound"),
        pytest.param(("MINUTES=0",), " --operators --minutes 0", " --only-built", id="with a bound"),
    ],
)
def test_operators_are_built_before_their_tests(make, arguments, build, want):
    status, calls = make("test-operators", *arguments)
    assert status == 0
    assert calls == [f"{BUILD}{build}", f"pytest -n 3 -m operators and not (promise or long) --limit-reruns 2{want}"]


@pytest.mark.parametrize(
    ("arguments", "want"), [((), ""), (("MINUTES=20",), " --minutes 20"), (("MINORS=1.30 1.36",), " 1.30 1.36")]
)
def test_other_minors_are_tested_by_one_command(make, arguments, want):
    assert make("test-versions", *arguments) == (0, [f"python -m tests.ci.versions --workers 3{want}"])


@pytest.mark.parametrize(("build", "tests"), [(1, 0), (0, 1), (1, 1)])
def test_a_failed_build_and_a_failed_test_of_operators_fail_and_the_tests_run(make, build, tests):
    status, calls = make("test-operators", "MINUTES=5", build=build, tests=tests)
    assert status != 0
    assert len(calls) == 2
