"""Test runs that build: a failed build fails tests, skips none and delays no others; workers build once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control_plane.fixtures import RECIPES_BY_FIXTURE
from tests.control_plane.versions import CONTROL_PLANE, RECIPES

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


def test_what_a_fixture_needs_is_built_by_its_name():
    wanted = [recipe for group in RECIPES_BY_FIXTURE.values() for recipe in group]
    assert [RECIPES[recipe.name] for recipe in wanted] == wanted
