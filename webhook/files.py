"""Snapshots of folders, input errors.

What cannot be used of all that is read: one error for commands to end with, whatever they read.
"""

import asyncio
import gc
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path, PosixPath
from typing import Final, NoReturn


class InputError(Exception):
    """A policy, a file, a history or a cluster cannot be used; each of `problems` is a line that says why.

    A command that it ends prints these and exits with 2, without a traceback (webhook/cli/options.py).
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[object, ...] = problems


class _KubeconfigContext(PosixPath):
    """The path of a kubeconfig, and the context of it that the user chose."""

    context = ""


def in_context(kubeconfig: Path, context: str) -> Path:
    """Return the path of a kubeconfig that is read in a context, wherever it is passed on as a path."""
    found = _KubeconfigContext(kubeconfig)
    found.context = context
    return found


def context_of(kubeconfig: Path) -> str:
    """Return the context in which a kubeconfig is to be read; "" for its current one."""
    return kubeconfig.context if isinstance(kubeconfig, _KubeconfigContext) else ""


# Work on the present state in a process of its own, which ends with it.
#
# A fork is a copy of the world that costs milliseconds. What the work changes there is gone with it; it may take as
# long as its limit without delaying anyone; and whatever a tenant wrote can at worst end that process.


AT_ONCE: Final = 2
"""Processes that work at a time."""

WAITING: Final = 16
"""Requests that may wait for one of them; further ones are refused."""

MOST_BYTES: Final = 16 << 20
"""Bytes of one answer."""

_MORE_MEMORY: Final = 1 << 30
_CHUNK: Final = 1 << 16
_DONE: Final = b"+"
_FAILED: Final = b"-"


class SnapshotError(Exception):
    """The work has no answer: too many wait, it took too long, or it failed."""


class TooLongError(SnapshotError):
    """The work took longer than it may."""


class Snapshots:
    """Runs work on snapshots. `seconds` is the limit of each, in processor time and, four times that, in all.

    It may use `more_bytes` of memory beside those of the process that it is a fork of.
    """

    def __init__(self, *, seconds: int = 10, more_bytes: int = _MORE_MEMORY) -> None:
        self._seconds = seconds
        self._more_bytes = more_bytes
        self._free = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def run(self, work: Callable[[], bytes]) -> bytes:
        """Return what the work returns. Raises SnapshotError."""
        if self._waiting >= WAITING:
            raise SnapshotError("too many questions wait to be answered: try again in a few seconds")
        self._waiting += 1
        try:
            async with self._free:
                return await self._run(work)
        finally:
            self._waiting -= 1

    async def _run(self, work: Callable[[], bytes]) -> bytes:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child runs none, and only computes
            pid = os.fork()
        if not pid:
            os.close(reading)
            _work_and_end(work, writing, self._seconds, self._more_bytes)
        os.close(writing)
        try:
            async with asyncio.timeout(4 * self._seconds):
                answer = await _read_all(reading)
        except TimeoutError:
            raise TooLongError(_TOO_LONG) from None
        finally:
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)  # noqa: ASYNC222 - it was killed: this takes no time
        return _checked(answer, status)


_TOO_LONG: Final = "the answer takes too long to compute: ask the command line, or ask about less"


def _checked(answer: bytes, status: int) -> bytes:
    if answer[:1] == _DONE:
        return answer[1:]
    if answer[:1] == _FAILED:
        raise SnapshotError(answer[1:].decode(errors="replace"))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise TooLongError(_TOO_LONG)
    raise SnapshotError("the answer could not be computed: its process ended without one")


async def _read_all(reading: int) -> bytes:
    """Read to the end of the pipe. Raises SnapshotError where there is too much."""
    loop = asyncio.get_running_loop()
    found = bytearray()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(reading, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(reading)
        chunk = os.read(reading, _CHUNK)
        if not chunk:
            return bytes(found)
        found += chunk
        if len(found) > MOST_BYTES:
            raise SnapshotError("the answer is too large to show")


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _work_and_end(work: Callable[[], bytes], writing: int, seconds: int, more_bytes: int) -> NoReturn:
    """Do the work in the child, write its answer, and end without any of the parent's clean-up."""
    try:
        _limit(seconds, more_bytes)
        try:
            answer = _DONE + work()
        except SnapshotError as error:
            answer = _FAILED + str(error).encode()
        except MemoryError:
            answer = _FAILED + b"the answer needs too much memory to compute"
        except Exception:
            answer = _FAILED + f"this is a bug in Fairgate: {traceback.format_exc(limit=-1)}".encode()
        view = memoryview(answer)
        while view:
            view = view[os.write(writing, view) :]
    finally:
        os._exit(0)


def _limit(seconds: int, more_bytes: int) -> None:
    gc.disable()  # a collection would touch, and so copy, all of the parent's memory
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():  # elsewhere than on Linux, memory has no limit
        pages = int(statm.read_text().split()[0])
        most = pages * resource.getpagesize() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
