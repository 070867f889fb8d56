"""Pauses between the writes of one ledger: for other replicas that write, too, and after failures."""

import asyncio
import random
from typing import Final

from webhook.cluster.ledger.team_ledger_client import WRITE_SECONDS

_RIVAL_SECONDS: Final = 1.0
"""For how long to yield to another replica that wrote: two that write without pause starve a third for seconds (three
writers at 200 requests/s: p99 5 s before, well under a second with it)."""

_FAILURE_SECONDS: Final = 0.05
"""Backoff after the first failure; doubled for each further one …"""

_MAX_BACKOFF_SECONDS: Final = 1.0
"""… up to this: a waiting request has some four seconds."""


class WritePace:
    """Knows how long a write takes and when another replica last wrote. Needs a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._write_seconds = 0.005  # duration of the last write
        self._rival_at = float("-inf")

    def wrote(self, seconds: float) -> None:
        """Note how long a write took."""
        self._write_seconds = min(seconds, WRITE_SECONDS / 30)

    def saw_rival(self) -> None:
        """Note that another replica wrote."""
        self._rival_at = self._loop.time()

    async def yield_to_rival(self, writes: float) -> None:
        """Pause for up to so many write durations while another replica writes, too; longer after a success."""
        if self._loop.time() - self._rival_at < _RIVAL_SECONDS:
            await asyncio.sleep(random.uniform(0.0, writes) * self._write_seconds)  # noqa: S311 - jitter

    async def back_off(self, failures: int) -> None:
        """Pause after so many failures in a row; at random, so that replicas do not retry together."""
        seconds = min(_MAX_BACKOFF_SECONDS, _FAILURE_SECONDS * 2.0 ** min(failures - 1, 16))
        await asyncio.sleep(random.uniform(0.5, 1.0) * seconds)  # noqa: S311 - jitter
