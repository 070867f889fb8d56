"""How a list-watch paces itself: sizes, timeouts and rests, with their production values and reasons."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Sizes in objects, times in seconds."""

    page: int = 100
    """Objects asked for at once, each page cut into objects in one go. A trade: 3,000 pods of 6.4 KB from a
    kube-apiserver 1.37 on a busy 2-core machine, 12 lists each, medians: pages of 500 (slices of 100) take 0.35 s and
    hold the loop for up to 7.6 ms of CPU; pages of 100 (slices of 50) take 0.45 s and hold it for up to 3.3 ms, though
    more often above 1 ms (57 times against 27). The longest hold is what a decision may meet, so the smaller pages."""
    slice: int = 50
    """Objects applied before other tasks get their turn: about 0.5 ms of pods. Slices of 2.6 ms once took the p99 of
    decisions from 2 ms to 68 ms, for requests need several turns of the loop each and pile up."""
    list_read: float = 60.0
    """Silence allowed while a page is made; the server gives up on it after 60 s by itself."""
    watch_read: float = 150.0
    """Silence allowed in a watch. Bookmarks come about every 60 s: two and a half of them missing is a dead peer."""
    watch_min: float = 300.0
    """Shortest life of a watch: the server is asked to end it after a random time, so that watches spread …"""
    watch_max: float = 600.0
    """… over the replicas of the API server again after one was restarted."""
    first_rest: float = 0.5
    """Rest after the first failure; doubled for each further one …"""
    longest_rest: float = 30.0
    """… up to this. A server that comes back is noticed within half a minute."""
    settled: float = 10.0
    """A watch that lived this long was a healthy one: the next failure is a first one again."""
    absent_rest: float = 60.0
    """Between two looks for an optional API that is not there. Below the staleness limit of readiness."""
    uniform: Callable[[float, float], float] = random.uniform
    """Source of jitter."""

    def rest(self, failures: int, *, asked: float = 0.0) -> float:
        """Tell how long to rest after so many failures in a row (0: not at all); `asked` is the server's wish.

        Half of the rest is random: clients that failed together do not come back together.
        """
        if failures == 0:
            return 0.0
        full = min(self.longest_rest, self.first_rest * 2.0 ** min(failures - 1, 32))
        return max(self.uniform(full / 2, full), min(asked, self.longest_rest))

    def lifetime(self) -> int:
        """Draw how long the server may keep the next watch open."""
        return max(1, round(self.uniform(self.watch_min, self.watch_max)))


DEFAULT_PACE: Final = Pace()
"""The pace of production."""
