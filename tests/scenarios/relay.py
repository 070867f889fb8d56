"""A TCP relay in front of the API server, which a test breaks, silences and restores: the network in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Relay:
    """Passes bytes both ways. `silence` keeps connections open and passes nothing more; `cut` ends and refuses them."""

    target: int
    port: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _is_cut: bool = False
    _passes: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        """End every connection, and every new one at once."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Forward nothing, on old connections or new, without closing them."""
        self._passes.clear()

    def mend(self) -> None:
        """Forward everything again."""
        self._is_cut = False
        self._passes.set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Relay]:
        """Listen until the block ends."""
        self._passes.set()
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            self._passes.set()
            await asyncio.gather(*self._tasks)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            if not self._is_cut:
                there = await asyncio.open_connection("127.0.0.1", self.target)
                self._writers.add(there[1])
                await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
                self._writers.discard(there[1])
        writer.close()
        self._writers.discard(writer)
        self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
