"""What every test may use."""

import gc
import os
import signal
import sys

from hypothesis import settings

from tests.examples import examples

pytest_plugins = ["tests.control_plane.fixtures", "tests.workers", "tests.ci.timing", "tests.ci.retries"]

settings.register_profile("fairgate", examples())
settings.load_profile("fairgate")

# workers and the processes of tests would compile all there is again, each of them
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a shell has what it starts in the background ignore Ctrl-C, and the processes of tests would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was imported and collected: a tenth of the tests' processor time."""
    gc.freeze()
