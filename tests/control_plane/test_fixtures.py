"""A test run whose control plane cannot be built: its tests fail, are never skipped, and hold up no others."""

import os
import subprocess
import sys
from pathlib import Path

from tests.control_plane.build import RECIPES
from tests.control_plane.fixtures import RECIPES_BY_FIXTURE

REPOSITORY = Path(__file__).parents[2]

# It ends only when the test that needs nothing of it has run.
BROKEN_GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.26.8; exit 0; }
while ! [ -e "$(dirname "$0")/plain" ]; do sleep 0.1; done
echo "no space left on device" >&2; exit 1
"""
NEEDY = """
def test_cluster(cluster): pass
"""
PLAIN = """
from pathlib import Path
def test_plain(): Path(__file__).with_name("plain").touch()
"""


def test_tests_that_need_it_fail_and_the_others_run_meanwhile(tmp_path):
    (tmp_path / "go").write_text(BROKEN_GO)
    (tmp_path / "go").chmod(0o755)
    (tmp_path / "test_a.py").write_text(NEEDY)
    (tmp_path / "test_b.py").write_text(PLAIN)
    command = [sys.executable, "-m", "pytest", "-p", "tests.control_plane.fixtures", "-p", "no:cacheprovider", "-ra"]
    environment = {name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "-c", os.devnull, tmp_path],
        cwd=REPOSITORY,
        env=environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
    assert "the control plane could not be built" in done.stdout
    assert "no space left on device" in done.stdout
    assert "once, about" in done.stderr  # whoever waits for the first build sees that it runs


def test_what_a_fixture_needs_is_built_by_its_name():
    wanted = [recipe for group in RECIPES_BY_FIXTURE.values() for recipe in group]
    assert [RECIPES[recipe.name] for recipe in wanted] == wanted
