"""Fixtures for all tests."""

import gc
import os
import signal
import sys

import pytest
from hypothesis import settings

from tests.examples import examples

CI = ("tests.ci.timing", "tests.ci.retries", "tests.ci.hang")
pytest_plugins = ["tests.control_plane.fixtures", "tests.cluster.support.fixtures", "tests.workers", *CI]

settings.register_profile("fairgate", examples())
settings.load_profile("fairgate")

# workers and the processes of tests would compile everything again, each of them
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.disable()  # while tests are collected: each worker does that, and almost all that it makes stays

# a shell makes its background processes ignore Ctrl-C, and the processes of tests would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A browser takes seconds to start: its tests are no part of the fast ones."""
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Exclude everything imported and collected from garbage collection: a tenth of the tests' processor time."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # what a test leaves in cycles goes at the end of its file at the latest
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def garbage_of_a_file():
    """Have what a file leaves open in cycles of objects fail there, not in the test in which it would be collected."""
    yield
    gc.collect()
    gc.freeze()  # what is left stays: the next file's collection need not look at it
