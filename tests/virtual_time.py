"""An event loop whose clock stops while anything happens, and jumps to the next timer once nothing does.

What waits for seconds takes none, and a machine that stalls loses no time: deadlines run out only when the code has
nothing else to do. It fits tests whose sockets have both ends in this loop; other processes live on the real clock.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

QUIET_SECONDS = 0.0002
"""How long sockets must have been silent, really, before the clock jumps."""
TURN_SECONDS = 0.00001
"""What a turn of the loop takes: a task that never rests does not stop the clock for the others."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Counts its seconds itself."""

    def __init__(self) -> None:
        self._seconds = time.monotonic()
        self._threads = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Let time pass, as it does for a process that is paused."""
        self._seconds += seconds

    @property
    def waits_for_threads(self) -> bool:
        return self._threads > 0

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _future: asyncio.Future[Any]) -> None:
        self._threads -= 1


class _Selector(selectors.DefaultSelector):
    """Waits for sockets a moment, and for time not at all."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.advance(TURN_SECONDS)
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self._loop.waits_for_threads:
            ready = super().select(timeout)
        else:
            time.sleep(QUIET_SECONDS)
            ready = super().select(0)
        if not ready and timeout is not None:
            self._loop.advance(timeout)
        return ready
