"""Pytest plugin: a limit on how many tests of a run may need a second try (`--reruns` of pytest-rerunfailures).

One such test in thousands can be the machine's fault; two mean that the suite has races.
"""

from __future__ import annotations

import pytest
from pytest_rerunfailures import ClientStatusDB, StatusDB

MOST = 600
"""Characters of a reason."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("rerunfailures").addoption(
        "--limit-reruns", type=int, metavar="N", help="fail when more than N tests were run again"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that gets all reports: not in the workers of pytest-xdist.

    Those would ask it before each test how often that failed, as a test whose process died may be run again. Here it
    never is, as whole files are handed out, and an answer took up to 40 ms: half of the time of `make test-fast`.
    """
    limit: int | None = config.getoption("limit_reruns")
    if isinstance(asked := getattr(config, "failures_db", None), ClientStatusDB):
        asked.sock.close()
        config.failures_db = StatusDB()  # type: ignore[attr-defined]
    elif limit is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Retries(limit))


class Retries:
    """The tests of one run that were rerun."""

    def __init__(self, limit: int):
        self.limit = limit
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test that failed and is rerun."""
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # pytest-rerunfailures adds this outcome
            self.reasons.setdefault(report.nodeid, _reason(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if too many tests were rerun."""
        if len(self.reasons) > self.limit and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report which tests were rerun and why, and that the run failed for it."""
        for name, reason in sorted(self.reasons.items()):
            terminalreporter.line(f"second try: {name}: {reason}")
        if len(self.reasons) > self.limit:
            names = ", ".join(sorted(self.reasons))
            counted = f"{len(self.reasons)} tests needed a second try, the limit is {self.limit}"
            terminalreporter.line(f"FAILED: {counted}: {names}", red=True)


def _reason(report: pytest.TestReport) -> str:
    """Why a test failed, in one line that says as much as the first lines of its error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join(str(report.longrepr if crash is None else crash.message).split())[:MOST]
