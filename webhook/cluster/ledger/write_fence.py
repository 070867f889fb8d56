"""When this process last wrote a ledger: what others still send over an earlier version has no effect."""

import asyncio
from contextlib import suppress


class WriteFence:
    """The last write that succeeded, by when it was sent. Times are of the event loop's clock."""

    def __init__(self) -> None:
        self._sent = float("-inf")
        self._written = asyncio.Event()  # set by the next write that succeeds

    def note(self, sent: float) -> None:
        """Note a write that succeeded."""
        self._sent = sent
        self._written.set()
        self._written = asyncio.Event()

    def is_after(self, time: float) -> bool:
        """Whether a write was sent since then, and succeeded."""
        return self._sent >= time

    async def wait(self, *, since: float, deadline: float) -> bool:
        """Wait for such a write until the deadline; return whether there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not self.is_after(since):
                    await self._written.wait()
        return self.is_after(since)
