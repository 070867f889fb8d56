"""Pauses between the writes of one ledger: to gather charges, for other replicas that write, and after failures."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from webhook.cluster.ledger.team_ledger_client import WRITE_SECONDS

_RIVAL_SECONDS: Final = 1.0
"""For how long to yield to another replica that wrote: two that write without pause starve a third for seconds (three
writers at 200 requests/s: p99 5 s before, well under a second with it)."""

_FAILURE_SECONDS: Final = 0.05
"""Backoff after the first failure; doubled for each further one …"""

_MAX_BACKOFF_SECONDS: Final = 1.0
"""… up to this: a waiting request has some four seconds."""


_FREQUENT: Final = 8
"""So many writes within a second, with _SHARED charges in each on average, are frequent: callers charge at once, and go
on with it. A caller who waits for each of its pods is never slowed down, nor are the first writes of a burst."""
_SHARED: Final = 1.5

_GATHERING_WRITES: Final = 8
_MAX_GATHERING_SECONDS: Final = 0.1
_ENOUGH: Final = 8
"""While writes are frequent, the next one begins so many durations of a write after the last one, at most this long, or
once so many requests wait. It saves a fifth of the writes; two of five without the last bound, but then the callers of
one busy team wait longer (docs/adr/0008-ledger.md)."""


class _Write(NamedTuple):
    ended_at: float
    charges: int


class WritePace:
    """Knows the last writes, and when another replica last wrote. Needs a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._write_seconds = 0.005  # duration of the last write
        self._writes: deque[_Write] = deque(maxlen=_FREQUENT)
        self._rival_at = float("-inf")

    def wrote(self, seconds: float, *, charges: int) -> None:
        """Note how long a write took, which ends now, and how many charges were in it."""
        self._write_seconds = min(seconds, WRITE_SECONDS / 30)
        self._writes.append(_Write(self._loop.time(), charges))

    async def gather(self, waiting: Callable[[], int]) -> None:
        """Pause before a write while writes are frequent, so that more requests share it; `waiting` counts those.

        Not while another replica writes: each then pauses for the other already.
        """
        now = self._loop.time()
        is_frequent = len(self._writes) == _FREQUENT and now - self._writes[0].ended_at <= 1.0
        if not is_frequent or self._has_rival(now):
            return
        if sum(write.charges for write in self._writes) <= _SHARED * _FREQUENT:
            return
        pause = min(_GATHERING_WRITES * self._write_seconds, _MAX_GATHERING_SECONDS)
        end = self._writes[-1].ended_at + pause
        while waiting() < _ENOUGH and (left := end - self._loop.time()) > 0:  # noqa: ASYNC110 - eight times at most
            await asyncio.sleep(min(left, pause / _GATHERING_WRITES))

    def saw_rival(self) -> None:
        """Note that another replica wrote."""
        self._rival_at = self._loop.time()

    async def yield_to_rival(self, writes: float) -> None:
        """Pause for up to so many write durations while another replica writes, too; longer after a success."""
        if self._has_rival(self._loop.time()):
            await asyncio.sleep(random.uniform(0.0, writes) * self._write_seconds)  # noqa: S311 - jitter

    def _has_rival(self, now: float) -> bool:
        return now - self._rival_at < _RIVAL_SECONDS

    async def back_off(self, failures: int) -> None:
        """Pause after so many failures in a row; at random, so that replicas do not retry together."""
        seconds = min(_MAX_BACKOFF_SECONDS, _FAILURE_SECONDS * 2.0 ** min(failures - 1, 16))
        await asyncio.sleep(random.uniform(0.5, 1.0) * seconds)  # noqa: S311 - jitter
