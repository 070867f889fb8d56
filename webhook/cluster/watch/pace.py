"""Page sizes, timeouts and backoffs of a list-watch, with their production values and reasons."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Sizes in objects, times in seconds."""

    page: int = 50
    """Objects in one page if the server cannot stream a list. A page is split into objects in one go, so it is small:
    100 pods of 6.4 KB block the event loop for up to 3.3 ms."""
    slice_seconds: float = 0.0003
    """Time for which objects are applied before other tasks run. A request needs several turns of the loop, so delays
    add up: slices of 2.6 ms once raised the p99 of decisions from 2 ms to 68 ms. 0.5 ms is harmless; this is less,
    since two kinds may be listed in the same turn."""
    list_timeout: float = 60.0
    """Longest silence while the server builds a page; its own timeout is 60 s."""
    watch_timeout: float = 90.0
    """Longest silence of a watch before it is opened again. Bookmarks come about every 60 s, but the API server sends
    none for the version that the watch began with, and drops one if its buffer is full: one missing bookmark must not
    make a replica unready, so this is between the 60 s and the staleness limit of readiness."""
    watch_min: float = 300.0
    """Shortest lifetime of a watch: the server ends it after a random time, so that watches spread …"""
    watch_max: float = 600.0
    """… over the replicas of the API server again after one was restarted."""
    initial_backoff: float = 0.5
    """Backoff after the first failure; doubled for each further one …"""
    max_backoff: float = 30.0
    """… up to this. A server that recovers is noticed within half a minute."""
    settled: float = 10.0
    """A watch that lasted this long was healthy: the next failure counts as the first one."""
    missing_api_backoff: float = 60.0
    """Between two checks for an optional API that is missing. Below the staleness limit of readiness."""
    clock: Callable[[], float] = time.perf_counter
    """The clock that measures slices."""
    uniform: Callable[[float, float], float] = random.uniform
    """Source of jitter."""

    def backoff(self, failures: int, *, retry_after: float = 0.0) -> float:
        """Return the backoff after `failures` in a row, 0 for none; at least the server's `retry_after`.

        Half of it is random: clients that failed together do not retry together.
        """
        if failures == 0:
            return 0.0
        full = min(self.max_backoff, self.initial_backoff * 2.0 ** min(failures - 1, 32))
        return max(self.uniform(full / 2, full), min(retry_after, self.max_backoff))

    def lifetime(self) -> int:
        """Return a random lifetime for the next watch, in whole seconds."""
        return max(1, round(self.uniform(self.watch_min, self.watch_max)))


DEFAULT_PACE: Final = Pace()
"""The production values."""
