"""Processes of tests that do not outlast a test that fails."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def killed_on_failure(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process for the block, which waits for its end as Popen does, but kills it first if the block raises.

    Popen itself would wait for ever for a server that a failed assertion, or the test's timeout, has left running.
    """
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
