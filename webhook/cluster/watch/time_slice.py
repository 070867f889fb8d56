"""A time slice on the event loop, after which other tasks get to run."""

import asyncio

from webhook.cluster.watch.pace import Pace


class TimeSlice:
    """A time slice that starts when it is created, and again with each `pause`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._end = pace.clock() + pace.slice_seconds

    @property
    def is_spent(self) -> bool:
        """Whether the slice is over."""
        return self._pace.clock() >= self._end

    async def pause(self) -> None:
        """Let other tasks run, then start the next slice."""
        await asyncio.sleep(0)
        self._end = self._pace.clock() + self._pace.slice_seconds
