"""How a list-watch paces itself: sizes, timeouts and rests, with their production values and reasons."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Sizes in objects, times in seconds."""

    page: int = 50
    """Objects asked for at once where the server cannot stream a list. A page is cut into objects in one go, so it is
    small: 100 pods of 6.4 KB hold the loop for up to 3.3 ms."""
    slice_seconds: float = 0.0003
    """Time for which objects are applied before other tasks get their turn. Requests need several turns of the loop
    each and pile up: slices of 2.6 ms once took the p99 of decisions from 2 ms to 68 ms. 0.5 ms is harmless; less than
    that, since two kinds may be listed in the same turn."""
    list_timeout: float = 60.0
    """Silence allowed while a page is made; the server gives up on it after 60 s by itself."""
    watch_timeout: float = 90.0
    """Silence allowed in a watch before it is opened again. Bookmarks come about every 60 s, but the API server sends
    none of a version that the watch began with, and drops one where its buffer is full: one missing bookmark must not
    make a replica unready, so this lies between the 60 s and the staleness limit of readiness."""
    watch_min: float = 300.0
    """Shortest life of a watch: the server is asked to end it after a random time, so that watches spread …"""
    watch_max: float = 600.0
    """… over the replicas of the API server again after one was restarted."""
    initial_backoff: float = 0.5
    """Rest after the first failure; doubled for each further one …"""
    max_backoff: float = 30.0
    """… up to this. A server that comes back is noticed within half a minute."""
    settled: float = 10.0
    """A watch that lived this long was a healthy one: the next failure is a first one again."""
    missing_api_backoff: float = 60.0
    """Between two looks for an optional API that is not there. Below the staleness limit of readiness."""
    clock: Callable[[], float] = time.perf_counter
    """What slices are measured by."""
    uniform: Callable[[float, float], float] = random.uniform
    """Source of jitter."""

    def rest(self, failures: int, *, asked: float = 0.0) -> float:
        """Tell how long to rest after so many failures in a row (0: not at all); `asked` is the server's wish.

        Half of the rest is random: clients that failed together do not come back together.
        """
        if failures == 0:
            return 0.0
        full = min(self.max_backoff, self.initial_backoff * 2.0 ** min(failures - 1, 32))
        return max(self.uniform(full / 2, full), min(asked, self.max_backoff))

    def lifetime(self) -> int:
        """Draw how long the server may keep the next watch open."""
        return max(1, round(self.uniform(self.watch_min, self.watch_max)))


DEFAULT_PACE: Final = Pace()
"""The pace of production."""
