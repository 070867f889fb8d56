"""A TCP load balancer for tests: spreads connections over servers, and leaves out those that are not there."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def balancing(ports: Sequence[int]) -> Iterator[int]:
    """Listen on a free loopback port until the end of the block; gives the port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="balancer")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_listen(ports), loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listen(ports: Sequence[int]) -> asyncio.Server:
    turns = itertools.count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = next(turns)
        for number in range(len(ports)):
            with suppress(OSError):
                port = ports[(turn + number) % len(ports)]
                back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_copy(reader, back_writer), _copy(back_reader, writer))
                return
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _close(server: asyncio.Server) -> None:
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
