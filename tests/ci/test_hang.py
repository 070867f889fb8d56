"""A test that hangs beyond its timeout ends its process, with a stack, and the others run."""

import pytest

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

TESTS = """
import subprocess
import sys
import time

def test_hangs_in_its_clean_up():
    try:
        assert sys.argv == "it fails first"
    finally:
        try:
            time.sleep(100)
        finally:
            subprocess.Popen(["sleep", "120"]).wait()

def test_steady(): pass
"""


def test_what_hangs_after_its_timeout_is_reported_and_the_others_run(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_hang=TESTS)
    pytester.makeini("[pytest]\ntimeout = 0.5\nhang_seconds = 0.5\n")
    plugins = ["-p", "tests.ci.hang", "-p", "pytest_timeout", "-p", "xdist.plugin", "-p", "no:cacheprovider"]
    ran = pytester.runpytest_subprocess(*plugins, "-n", "1")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*crashed while running 'test_hang.py::test_hangs_in_its_clean_up'*"])
    ran.stderr.fnmatch_lines(["*in test_hangs_in_its_clean_up*"])
    assert ran.duration < 100
