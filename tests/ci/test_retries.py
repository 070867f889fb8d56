"""A run fails when more tests than allowed needed a second try."""

import pytest

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

FLAKY = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range(2))
def test_flaky(number, request):
    seen = pathlib.Path(str(request.config.rootpath), f"seen-{number}")
    first = not seen.exists()
    seen.touch()
    assert not first, "two\\nlines"

def test_a_worker_asks_no_other_process(pytestconfig):
    assert type(pytestconfig.failures_db).__name__ != "ClientStatusDB"
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["serial", "workers"])
@pytest.mark.parametrize(("limit", "want"), [(2, pytest.ExitCode.OK), (1, pytest.ExitCode.TESTS_FAILED)])
def test_more_reruns_than_allowed_fail_a_run_that_passed(pytester, monkeypatch, workers, limit, want):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_flaky=FLAKY)
    plugins = ["-p", "tests.ci.retries", "-p", "pytest_rerunfailures", "-p", "no:cacheprovider"]
    ran = pytester.runpytest_subprocess(*plugins, *workers, "--reruns=1", f"--limit-reruns={limit}")
    assert ran.ret == want
    ran.assert_outcomes(passed=3)
    ran.stdout.fnmatch_lines(["second try: test_flaky.py::test_flaky?0?: AssertionError: two lines*"])
    message = "*FAILED: 2 tests needed a second try, the limit is 1: test_flaky.py::test_flaky?0?, *"
    if want == pytest.ExitCode.OK:
        ran.stdout.no_fnmatch_line(message)
    else:
        ran.stdout.fnmatch_lines([message])
