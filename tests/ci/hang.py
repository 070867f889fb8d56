"""Pytest plugin: ends a process in which a test still hangs after its timeout, with the stack of every thread.

The signal of pytest-timeout raises once. What then waits in a `finally`, an `__exit__` or a fixture's teardown would
wait for ever, and the run with it; pytest's own `faulthandler_timeout` is canceled by the first failure. pytest-xdist
reports the test of a process that ended as failed and starts another process for the rest.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key  # pytest-xdist and capturing replace sys.stderr

GRACE_SECONDS = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    parser.addini("hang_seconds", "seconds of a test beyond its timeout, then its process ends", default="")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Watch one try of the test, from here on: the fixtures that it is the first to use, itself, and their end."""
    marker = item.get_closest_marker("timeout")
    timeout = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    if timeout:
        grace = float(item.config.getini("hang_seconds") or GRACE_SECONDS)
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(timeout + grace, file=stderr, exit=True)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Stop watching once its fixtures have ended."""
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
