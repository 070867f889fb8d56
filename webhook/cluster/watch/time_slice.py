"""A stretch of work on the event loop, after which whoever waits for the loop gets a turn."""

import asyncio

from webhook.cluster.watch.pace import Pace


class Slice:
    """Measured from when it was made, or from its last `rest`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._end = pace.clock() + pace.slice_seconds

    @property
    def is_spent(self) -> bool:
        """Tell whether it is time to rest."""
        return self._pace.clock() >= self._end

    async def rest(self) -> None:
        """Let others have their turn, then begin anew."""
        await asyncio.sleep(0)
        self._end = self._pace.clock() + self._pace.slice_seconds
