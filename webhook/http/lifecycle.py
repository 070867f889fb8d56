"""How a server's process runs and ends: background tasks beside its main one, and signals that stop it."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(on_second: Callable[[str], None]) -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM or SIGINT sets; a second signal ends the process at once, after `on_second`."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            on_second(number.name)
            os._exit(128 + number)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def run_beside(tasks: Iterable[Coroutine[Any, Any, None]], main: Coroutine[Any, Any, object]) -> None:
    """Run background tasks until `main` returns; the first exception of any of them ends all, and is raised."""
    serving = asyncio.create_task(main)
    running = {serving, *(asyncio.create_task(task) for task in tasks)}
    try:
        while not serving.done():
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running -= done
            for task in done:
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
