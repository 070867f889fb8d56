"""What a test run says when the control plane cannot be built: failed, never skipped."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

BROKEN_GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.26.8; exit 0; }
echo "no space left on device" >&2; exit 1
"""
TESTS = """
def test_plain(): pass
def test_cluster(cluster): pass
"""


def test_tests_that_need_it_fail_and_the_others_run(tmp_path):
    (tmp_path / "go").write_text(BROKEN_GO)
    (tmp_path / "go").chmod(0o755)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.control_plane.fixtures", "-p", "no:cacheprovider", "-ra"]
    environment = {name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "-c", os.devnull, tmp_path / "test_it.py"],
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
