"""The tests' own Service: spreads connections over ready replicas, byte by byte, as kube-proxy does.

It runs as a separate process. A backend is ready as its /readyz reports, polled twice a second; three polls without a
response within a second make it unready, as for kubelets. An unready backend gets no new connections, and keeps its
open ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import uvloop

from tests.control_plane.processes import Processes

ROOT = Path(__file__).parents[2]
PROBE_SECONDS = 0.5
PROBE_FAILURES = 3
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=1.0)


def start(processes: Processes, name: str, port: int, *backends: int) -> None:
    """Start a balancer; it refuses connections until a backend is ready."""
    processes.start(
        name, [sys.executable, "-m", "tests.control_plane.balancer", str(port), *map(str, backends)], cwd=ROOT
    )


@contextmanager
def balancing(processes: Processes, name: str, port: int, *backends: int) -> Iterator[None]:
    """Spread connections until the end of the block."""
    start(processes, name, port, *backends)
    try:
        yield
    finally:
        processes.stop(name, signal.SIGKILL)


class Side(asyncio.Protocol):
    """One side of a pair of connections: the other side writes what it reads."""

    def __init__(self) -> None:
        self.other: Side | None = None
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def pair_with(self, other: Side) -> None:
        self.other, other.other = other, self
        for data in self._early:
            other.write(data)
        if self.transport is None or self.transport.is_closing():
            other.close()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the protocol's)
        if self.other is not None:
            self.other.close()


class Front(Side):
    """The client's side: looks for a backend as soon as it is there."""

    def __init__(self, ready: Ready) -> None:
        super().__init__()
        self._ready = ready

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._task = asyncio.create_task(self._find_backend())

    async def _find_backend(self) -> None:
        loop = asyncio.get_running_loop()
        for port in self._ready.ports():
            with contextlib.suppress(OSError):
                _, back = await loop.create_connection(Side, "127.0.0.1", port)
                self.pair_with(back)
                return
        self.close()  # refused, as by a Service without endpoints


class Ready:
    """Which backends are ready; each poll of `ports` begins with the next one."""

    def __init__(self, backends: list[int]) -> None:
        self._backends = backends
        self._is_ready = dict.fromkeys(backends, False)
        self._turn = itertools.count()

    def ports(self) -> Iterator[int]:
        ready = [port for port in self._backends if self._is_ready[port]]
        first = next(self._turn)
        for step in range(len(ready)):
            yield ready[(first + step) % len(ready)]

    async def probe_for_ever(self, port: int) -> None:
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        connector = aiohttp.TCPConnector(ssl=unverified, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=PROBE_TIMEOUT) as session:
            failures = 0
            while True:
                try:
                    async with session.get(f"https://127.0.0.1:{port}/readyz") as answer:
                        self._is_ready[port] = answer.ok
                    failures = 0
                except (aiohttp.ClientError, TimeoutError):
                    failures += 1
                    if failures >= PROBE_FAILURES:
                        self._is_ready[port] = False
                await asyncio.sleep(PROBE_SECONDS)


async def balance(port: int, backends: list[int]) -> None:
    """Spread connections until cancelled."""
    ready = Ready(backends)
    server = await asyncio.get_running_loop().create_server(lambda: Front(ready), "127.0.0.1", port)
    async with server, asyncio.TaskGroup() as group:
        for backend in backends:
            group.create_task(ready.probe_for_ever(backend))


if __name__ == "__main__":
    first, *others = map(int, sys.argv[1:])
    uvloop.run(balance(first, others))
