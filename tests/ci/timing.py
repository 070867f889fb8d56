"""Pytest plugin: where the time of a run went, by folder, and a limit on it that a first build does not count against.

It counts what tests report, so under pytest-xdist it works in the controller, where the reports of all workers arrive.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest

from tests.control_plane.assets import missing_binaries
from tests.control_plane.versions import RECIPES

PHASES = ("setup", "call", "teardown")
LEVELS = 2  # tests/scenarios is a folder of the table, and all below it is a part of that
SLOWEST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("timing")
    group.addoption("--timing", action="store_true", help="show at the end where the time went, by folder")
    group.addoption(
        "--limit-minutes",
        type=float,
        metavar="N",
        help="fail when the run took longer, unless binaries of the control plane were built meanwhile; shows --timing",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Watch the run, unless this process is a worker, whose reports its controller gets."""
    limit: float | None = config.getoption("limit_minutes")
    if (config.getoption("timing") or limit is not None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Timing(limit))


@dataclass(slots=True)
class Durations:
    """The seconds of one test or folder, by phase; a test that is tried again adds to its first try."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    tests: int = 0

    @property
    def total(self) -> float:
        """All phases together."""
        return sum(self.seconds.values())

    def add(self, other: Durations) -> None:
        """Add another one."""
        for phase, seconds in other.seconds.items():
            self.seconds[phase] += seconds
        self.tests += other.tests


class Timing:
    """The durations of one run."""

    def __init__(self, limit_minutes: float | None):
        self.limit_minutes = limit_minutes
        self.started = time.perf_counter()
        self.missing = _missing()
        self.durations: dict[str, Durations] = defaultdict(lambda: Durations(tests=1))
        self.verdict = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test."""
        self.durations[report.nodeid].seconds[report.when or "call"] += report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that took too long."""
        minutes = (time.perf_counter() - self.started) / 60
        if self.limit_minutes is None or minutes <= self.limit_minutes:
            return
        if built := self.missing - _missing():
            names = ", ".join(sorted(built))
            self.verdict = f"no limit on a run of {minutes:.1f} minutes in which these were built: {names}"
            return
        self.verdict = f"FAILED: the run took {minutes:.1f} minutes, the limit is {self.limit_minutes:g}"
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the table, the slowest tests and set-ups, and the result for the limit."""
        elapsed = time.perf_counter() - self.started
        of_tests = sum(each.total for each in self.durations.values())
        terminalreporter.section(f"where the time went: {of_tests:.1f} s of tests in {elapsed:.1f} s")
        for line in (*by_folder(self.durations), *slowest(self.durations)):
            terminalreporter.line(line)
        if self.verdict:
            terminalreporter.line(self.verdict, red=self.verdict.startswith("FAILED"))


def by_folder(durations: dict[str, Durations]) -> Iterable[str]:
    """A table with a line for each folder, the slowest first."""
    folders: dict[str, Durations] = defaultdict(Durations)
    for nodeid, each in durations.items():
        folders[_folder(nodeid)].add(each)
    width = max(map(len, folders), default=0)
    yield f"{'folder':{width}}  tests    setup     call teardown    total  share"
    everything = sum(each.total for each in folders.values()) or 1.0
    for name, each in sorted(folders.items(), key=lambda item: -item[1].total):
        phases = " ".join(f"{each.seconds[phase]:8.1f}" for phase in PHASES)
        yield f"{name:{width}}  {each.tests:5} {phases} {each.total:8.1f}  {each.total / everything:5.0%}"


def slowest(durations: dict[str, Durations]) -> Iterable[str]:
    """The slowest tests, and the slowest set-ups, which the first test of a module or a session pays for all."""
    for phase, title in (("call", "slowest tests"), ("setup", "slowest set-ups")):
        yield f"{title}:"
        order = sorted(durations.items(), key=lambda item: -item[1].seconds[phase])
        for nodeid, each in order[:SLOWEST]:
            yield f"{each.seconds[phase]:8.1f}  {nodeid}"


def _folder(nodeid: str) -> str:
    path = PurePosixPath(nodeid.partition("::")[0])
    return "/".join(path.parent.parts[:LEVELS]) or "."


def _missing() -> frozenset[str]:
    return frozenset(name for name, recipe in RECIPES.items() if missing_binaries(recipe))
