"""Test runs that build: a failed build fails tests, skips none and delays no others; workers build once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control_plane.assets import recipe_folder
from tests.control_plane.fixtures import RECIPES_BY_FIXTURE
from tests.control_plane.versions import (
    CONTROL_PLANE,
    FOR_REST,
    FOR_TEST,
    FOR_TEST_OPERATORS,
    JOBSET,
    OTHER_MINORS,
    RECIPES,
    SCHEDULER_PERF,
)

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]

# Both end only when the tests that need nothing of it have run, or after half a minute.
WAIT = """#!/bin/sh
[ "$1" = env ] && { echo go1.26.8; exit 0; }
cd "$(dirname "$0")"
for turn in $(seq 300); do [ $(ls ran-* 2>/dev/null | wc -l) -ge $(ls test_plain* | wc -l) ] && break; sleep 0.1; done
[ "$turn" = 300 ] && { echo "the others have not run" >&2; exit 1; }
"""
BROKEN_GO = f"""{WAIT}
echo "no space left on device" >&2; exit 1
"""
FAKE_GO = f"""{WAIT}
echo "$@" >> calls
out="$5"; shift 5
case "$out" in
  */) for package; do echo built > "$out$(basename "$package")"; done;;
  *) echo built > "$out";;
esac
"""
CLUSTER = """
def test_cluster(cluster): pass
"""
NEEDY = """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_needy(built_control_plane, number): pass
"""
IMPATIENT = """
from tests.control_plane import background
background.GIVES_WAY = False
"""
PLAIN = """
from pathlib import Path
def test_plain(): Path(__file__).with_name("ran-" + Path(__file__).stem).touch()
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest over some modules, with a Go of the test's own and an empty cache."""

    def run(go: str, modules: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "go").write_text(go)
        (tmp_path / "go").chmod(0o755)
        (tmp_path / "conftest.py").write_text(IMPATIENT)
        for name, text in modules.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.control_plane.fixtures",
            "-p",
            "no:cacheprovider",
            "-ra",
        ]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KUBEB", "PYTEST_"))}
        return subprocess.run(
            [*command, f"--rootdir={tmp_path}", "-c", os.devnull, *options, tmp_path],
            cwd=REPOSITORY,
            env=inherited | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_tests_that_need_it_fail_and_the_others_run_meanwhile(run):
    done = run(BROKEN_GO, {"a": CLUSTER, "plain": PLAIN})
    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
    assert "the control plane could not be built" in done.stdout
    assert "no space left on device" in done.stdout
    assert "[1/3] etcd 3.7.3: building" in done.stderr  # a person who waits for the first build sees its progress


def test_workers_build_once_and_show_it_once_and_the_others_run_meanwhile(run, tmp_path):
    modules = {"a": NEEDY, "b": NEEDY, "plain_c": PLAIN, "plain_d": PLAIN}
    done = run(FAKE_GO, modules, "-n2", "--dist=loadfile", "--no-loadscope-reorder")
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == len(CONTROL_PLANE)
    assert done.stderr.count("[1/3] etcd 3.7.3: building for 0 s") <= 1
    assert "another build" not in done.stderr


OPERATORS = """
import pytest

@pytest.fixture(scope="module")
def jobset(): pass

@pytest.fixture
def mine(jobset): pass

@pytest.fixture
def lws(): pass

def test_argument(jobset): pass
@pytest.mark.usefixtures("jobset")
def test_mark(): pass
def test_own_fixture(mine): pass
@pytest.mark.parametrize("number", range(2))
def test_each(number, jobset): pass
def test_other(lws): pass
def test_control_plane(built_control_plane, helm_binary): pass
def test_nothing(): pass
"""


@pytest.fixture
def built(tmp_path):
    """Put binaries of recipes into the cache of the test's own."""

    def built(*recipes):
        for recipe in recipes:
            folder = recipe_folder(recipe, root=tmp_path / "cache" / "fairgate" / "control-plane")
            folder.mkdir(parents=True)
            for program in recipe.programs:
                (folder / program.binary).touch()

    return built


def passed(done):
    """The tests that passed, in their order."""
    return [line.partition("::")[2].split()[0] for line in done.stdout.splitlines() if " PASSED" in line]


def test_tests_get_the_mark_from_the_fixtures_that_they_and_their_fixtures_request(run, built):
    built(*CONTROL_PLANE, *FOR_REST, *FOR_TEST_OPERATORS)
    marked = ["test_argument", "test_mark", "test_own_fixture", "test_each[0]", "test_each[1]", "test_other"]
    assert passed(run(BROKEN_GO, {"a": OPERATORS}, "-v", "-m", "operators")) == marked
    others = ["test_control_plane", "test_nothing"]
    assert passed(run(BROKEN_GO, {"a": OPERATORS}, "-v", "-m", "not operators")) == others


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["in one process", "in workers"])
def test_only_what_is_built_runs_and_a_line_says_what_does_not(run, built, workers):
    built(*CONTROL_PLANE, *FOR_REST, JOBSET)
    done = run(BROKEN_GO, {"a": OPERATORS}, "-m", "operators", "--only-built", *workers)
    assert "5 passed" in done.stdout
    *lines, closing = done.stdout.splitlines()
    others = [recipe.name for recipe in FOR_TEST_OPERATORS if recipe != JOBSET]
    assert f"left out, as they are not built: the tests of {', '.join(others)}" in lines
    assert "5 passed" in closing
    assert done.returncode == 0


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["in one process", "in workers"])
def test_a_run_that_leaves_out_everything_has_not_failed(run, built, workers):
    built(*CONTROL_PLANE, *FOR_REST)
    done = run(BROKEN_GO, {"a": OPERATORS}, "-m", "operators", "--only-built", *workers)
    assert "left out" in done.stdout
    assert done.returncode == 0


def test_without_tests_a_run_fails_where_everything_is_built(run, built):
    built(*CONTROL_PLANE, *FOR_REST, *FOR_TEST_OPERATORS)
    done = run(BROKEN_GO, {"plain": PLAIN}, "-m", "operators", "--only-built")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "left out" not in done.stdout


def test_a_control_plane_that_is_not_built_is_not_left_out(run):
    done = run(BROKEN_GO, {"a": NEEDY}, "--only-built")
    assert "3 errors" in done.stdout
    assert done.returncode == 1


def test_the_order_of_tests_depends_on_the_builds_that_they_need(run, built):
    modules = {"a": PLAIN, "b": NEEDY, "c": OPERATORS}
    built(*CONTROL_PLANE, *FOR_REST)
    needy = [f"test_needy[{number}]" for number in range(3)]
    want = ["test_control_plane", "test_nothing", *needy, "test_plain"]
    assert passed(run(BROKEN_GO, modules, "-v", "-m", "not operators")) == want


def test_each_recipe_but_those_of_benchmarks_is_built_for_one_of_the_commands():
    assert {*CONTROL_PLANE, *FOR_REST}.isdisjoint(FOR_TEST_OPERATORS)
    assert {*FOR_TEST, *FOR_REST, *FOR_TEST_OPERATORS} == {*RECIPES.values()} - {*OTHER_MINORS, SCHEDULER_PERF}


def test_what_a_fixture_needs_is_built_by_its_name():
    wanted = [recipe for group in RECIPES_BY_FIXTURE.values() for recipe in group]
    assert [RECIPES[recipe.name] for recipe in wanted] == wanted
