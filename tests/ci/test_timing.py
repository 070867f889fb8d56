"""Where the time of a run went, and the limit on it: the sums, and runs of pytest within pytest."""

import os

import pytest

from tests.ci.timing import Durations, by_folder, slowest
from tests.control_plane import assets
from tests.control_plane.versions import RECIPES

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

TESTS = """
import time
import pytest

@pytest.fixture(scope="module")
def server():
    time.sleep(0.2)
    yield
    time.sleep(0.1)

def test_first(server): time.sleep(0.1)
def test_second(server): pass
"""


def took(setup=0.0, call=0.0, teardown=0.0):
    return Durations({"setup": setup, "call": call, "teardown": teardown}, tests=1)


def test_the_phases_of_all_tests_are_added_up_by_folder_and_the_slowest_comes_first():
    durations = {
        "tests/quick/test_a.py::test_a": took(call=1),
        "tests/slow/test_a.py::test_a": took(setup=4, call=1),
        "tests/slow/deep/test_b.py::test_b[x::y/z]": took(call=0.5, teardown=3.5),
    }
    assert [line.split() for line in by_folder(durations)] == [
        ["folder", "tests", "setup", "call", "teardown", "total", "share"],
        ["tests/slow", "2", "4.0", "1.5", "3.5", "9.0", "90%"],
        ["tests/quick", "1", "0.0", "1.0", "0.0", "1.0", "10%"],
    ]


def test_the_slowest_tests_and_set_ups_come_first():
    durations = {"test_a.py::a": took(setup=1, call=2), "test_a.py::b": took(setup=2, call=1)}
    want = ["slowest tests:", "2.0 test_a.py::a", "1.0 test_a.py::b"]
    want += ["slowest set-ups:", "2.0 test_a.py::b", "1.0 test_a.py::a"]
    assert [" ".join(line.split()) for line in slowest(durations)] == want


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest with the plugin over a folder of two tests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    folder = pytester.mkdir("tests") / "slow"
    folder.mkdir()
    (folder / "test_slow.py").write_text(TESTS)

    def run(*options):
        return pytester.runpytest_inprocess("-p", "tests.ci.timing", "-p", "no:cacheprovider", *options)

    return run


def test_the_reports_of_all_workers_count(run):
    result = run("--limit-minutes=0.001", "-p", "xdist.plugin", "-n1")
    [line] = [line.split() for line in result.outlines if line.startswith("tests/slow ")]
    assert line[1] == "2"
    assert all(float(seconds) >= want for seconds, want in zip(line[2:6], (0.2, 0.1, 0.1, 0.4), strict=True))
    result.stdout.fnmatch_lines(["FAILED: the run took *.* minutes, the limit is 0.001"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_run_over_the_limit_fails_though_every_test_passed(run):
    result = run("--limit-minutes=0.001")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED: the run took *.* minutes, the limit is 0.001"])


def test_a_run_within_the_limit_passes(run):
    result = run("--limit-minutes=5")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*where the time went*"])
    result.stdout.no_fnmatch_line("*the limit is*")


def test_a_run_that_built_something_has_no_limit(run, pytester, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    etcd = os.fspath(assets.recipe_folder(RECIPES["etcd"], root=assets.cache_root()) / "etcd")
    build = f"etcd = Path({etcd!r})\n    etcd.parent.mkdir(parents=True)\n    etcd.touch()"
    pytester.makepyfile(test_build=f"from pathlib import Path\ndef test_build():\n    {build}\n")
    result = run("--limit-minutes=0.001")
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["no limit on a run of *.* minutes in which these were built: etcd"])


def test_an_exit_status_other_than_success_is_kept(run):
    assert run("--limit-minutes=0", "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_without_the_options_nothing_is_shown(run):
    run().stdout.no_fnmatch_line("*where the time went*")
